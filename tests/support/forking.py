"""Starts `python -m MODULE` or `python SCRIPT.py` as a fork of this process, which has torch.

The process has what a start gives: files, session, signals, environment and arguments of its own.
It has none of the tests' encodings, threads and functions at exit. It computes with one thread,
since others do not survive a fork. /proc shows the arguments of the tests, so its own are written
to a file of the folder `FORKED`, if that is set.
"""

import atexit
import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from ropewalk.encodings import REGISTRY, outside
from ropewalk.lab.training import process_group

KNOWN = dict(REGISTRY)


class Forking(subprocess.Popen):
    """Takes the place of `subprocess.Popen`, also in the processes that it starts."""

    def __init__(self, words, *, env=None, preexec_fn=None, **others):
        if words[0] == sys.executable and ("-m" in words or words[1].endswith(".py")):
            preexec_fn = partial(_become, list(map(str, words)), env, preexec_fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there may be other threads
            super().__init__(words, env=env, preexec_fn=preexec_fn, **others)


def pids_in(folder, *words):
    """List the processes in a folder of `FORKED` that still run and have these words."""
    found = []
    for path in folder.iterdir():
        with suppress(OSError):  # it has ended; of a zombie, the file is empty
            if {*words} < {*path.read_text("utf-8").split("\0")}:
                found += [int(path.name)] * bool(Path("/proc", path.name, "cmdline").read_bytes())
    return found


def _become(words, env, before):
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # as exec does; the parent waits for it
    status = 0
    try:
        if before is not None:
            before()
        _be_new(words, env)
        if "-m" in words:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ending:
        status = ending.code or 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        status = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os._exit(status)


def _be_new(words, env):
    gc.freeze()
    gc.enable()
    atexit._clear()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    how = {"encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, open(number, "rww"[number], **how))  # noqa: SIM115
    sys.stderr.reconfigure(line_buffering=True)
    torch._logging._internal._init_logs()  # its handlers have streams that are closed
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    warnings.resetwarnings()
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)  # as Python does
    sys.meta_path[:] = [finder for finder in sys.meta_path if "pytest" not in f"{finder}"]
    torch.set_num_threads(1)
    REGISTRY.clear()
    REGISTRY.update(KNOWN)
    outside._imported.clear()
    process_group._PARENT = os.getppid()
    if folder := os.environ.get("FORKED"):
        Path(folder, str(os.getpid())).write_text("\0".join(words), encoding="utf-8")
    sys.argv = words[words.index("-m") + 1 if "-m" in words else 1 :]
    sys.modules.pop(sys.argv[0], None)  # it runs again, as __main__
