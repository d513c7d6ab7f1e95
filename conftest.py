"""Every test starts from the same seeds; several workers share the cores, a thread for each."""

import ctypes
import functools
import gc
import os
import random
import signal
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import settings

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# A large tensor is kept for the next one instead of being given back: without that, the kernel
# clears every page of it anew, which takes a quarter of the time of tests of long sequences.
if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
    for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        mallopt(option, 2**30)

# The same examples each time, and no deadline; fewer than usual, since most tests ask for them
# once for each of a dozen specs or encodings.
settings.register_profile("suite", settings.get_profile("ci"), max_examples=20)

# A shell starts a script's background jobs deaf to Ctrl-C, which tests send and commands heed.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the marks choose
def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def seeds():
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed notes the stack for absent devices


@pytest.fixture(autouse=True, scope="module")
def freed_memory():
    """Give memory back after each file: glibc keeps what is freed, 0.6 GB after one large model.

    Python's collector passes over what is there before: modules and caches, which only grow, and
    with which each full collection takes more than half a second.
    """
    gc.collect()
    gc.freeze()
    yield
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@pytest.fixture
def forking(monkeypatch, tmp_path_factory):
    """Start processes of Python by a fork, where that is sound; importing torch takes 3 s.

    Returns a function that lists those of them that still run and have some words.
    """
    from forking import Forking, pids_in

    folder = tmp_path_factory.mktemp("forked")
    monkeypatch.setenv("FORKED", str(folder))
    if sys.platform == "linux":
        monkeypatch.setattr(subprocess, "Popen", Forking)
    return functools.partial(pids_in, folder)


@pytest.fixture
def traps(monkeypatch, tmp_path_factory):
    """Work in a folder of modules; fails if a process imports one of them."""
    folder = tmp_path_factory.mktemp("traps")
    for name in ("struct", "random", "yaml", "torch", "sitecustomize", "ropewalk/__init__"):
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("open(f'{__file__}.ran', 'w').close()\nraise ImportError(__file__)\n")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(folder)
    yield
    assert not list(folder.rglob("*.ran"))


@pytest.fixture
def command(monkeypatch, capfd):
    """Run `ropewalk WORDS` in this process: its status, standard output and standard error."""
    from ropewalk.cli import run_command  # needs the extra lab, which not every test has

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = [signal.getsignal(number) for number in numbers]
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ropewalk", *map(str, words)])
        return run_command(), *capfd.readouterr()

    yield run
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def mistake(command):
    """Run a command that is wrong: what it says, in one line on standard error, with status 2.

    Nothing else is printed, unless a training begins with its data.
    """

    def run(*words):
        status, out, err = command(*words)
        assert (status, out.removeprefix("preparing the data").strip()) == (2, ""), words
        assert err.startswith("ropewalk: "), words
        assert err.count("\n") == 1, words
        assert err.rstrip("\n").isprintable(), words
        return err

    return run
