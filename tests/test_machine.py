"""Devices by their names, and the peak memory of a process.

These fail when a name is taken that torch knows and nothing can be computed on, when a message runs
on with torch's own list of backends, when a process counts the memory of its parent, or when asking
for the commit runs a program that a repository around the package names.
"""

import re
import shlex
import subprocess
import sys

import pytest
import torch

from ropewalk import machine
from ropewalk.machine import devices, peak_memory, pick_device


@pytest.mark.parametrize(
    "name", ["meta", "xla", "lazy", "vulkan", "gpu", "cpu:7", "cuda:99", "", "x" * 100_000, "\x1b["]
)
def test_a_device_that_is_not_here_is_refused_in_a_short_line(name):
    with pytest.raises(
        ValueError, match="device must be one that this machine has, auto, cpu"
    ) as e:
        pick_device(name)
    assert len(str(e.value)) < 250
    assert str(e.value).isprintable()


def test_a_device_of_the_machine_is_taken(monkeypatch):
    for name in ("auto", *devices()):
        assert pick_device(name).type in ("cpu", "cuda", "mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert machine.devices() == ["cpu", "cuda", "cuda:0", "cuda:1", "mps"]
    assert pick_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux passes a peak on")
def test_peak_memory_is_that_of_the_process_alone():
    held = bytearray(b"1") * 2**28
    code = (
        "import sys, types\n"
        "sys.modules['torch'] = types.ModuleType('torch')  # it takes seconds, and is not needed\n"
        "from ropewalk.machine import peak_memory\n"
        "print(peak_memory(types.SimpleNamespace(type='cpu')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**22 < int(done.stdout) < peak_memory(torch.device("cpu")) - len(held) // 2


def test_no_program_of_a_repository_around_the_package_runs(tmp_path, monkeypatch):
    package, ran = tmp_path / "package", tmp_path / "ran"
    package.mkdir()
    (package / "machine.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a"]
    for words in ("init -q", "add .", "commit -qm first", f"config core.fsmonitor 'touch {ran};:'"):
        subprocess.run([*git, *shlex.split(words)], check=True)
    monkeypatch.setattr(machine, "__file__", str(package / "machine.py"))
    assert len(machine.commit()) == 40
    assert not ran.exists()


def test_what_does_not_fit_is_refused_with_the_first_way_out_that_does(monkeypatch):
    words = {"rule": "--model must fit into memory", "what": "its weights need"}
    ways = {"--dtype bfloat16": 3 * 2**30, "a smaller model": 0}
    monkeypatch.setattr(machine, "available_memory", lambda device: 2**30)
    machine.check_fits(2**30, torch.device("cpu"), **words)
    says = "its weights need 6.0 GiB, cpu has 1.0 GiB free; try a smaller model"
    with pytest.raises(ValueError, match=re.escape(f"{words['rule']}: {says}") + "$"):
        machine.check_fits(6 * 2**30, torch.device("cpu"), **words, ways=ways)
    monkeypatch.setattr(machine, "memory", lambda device: 4 * 2**30)
    with pytest.raises(ValueError, match=r"cpu has 4\.0 GiB; try --dtype bfloat16$"):
        machine.check_fits(6 * 2**30, torch.device("cpu"), **words, ways=ways, of_total=True)
    monkeypatch.setattr(machine, "available_memory", lambda device: None)
    machine.check_fits(2**60, torch.device("cpu"), **words)
