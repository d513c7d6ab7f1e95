"""Leases on the folders of cells.

These fail if two processes own a folder, if the folder of a dead process stays owned, if a living
owner on another machine loses its folder, if clocks decide, or if an owner that lost its folder
goes on.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest

from ropewalk import files
from ropewalk.files import Busy
from ropewalk.lab.running import lease
from ropewalk.lab.running.lease import Owner, Sightings, owned, read_lease, this_machine
from ropewalk.lab.stopping import BUSY

ELSEWHERE = Owner("token", "another boot", "node7", 4, "slurm job 3", "2026-01-01T00:00:00+00:00")
OWNS = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from ropewalk.lab.running import lease\n"
    "lease.RENEWED_EVERY, lease.LEASE = 0.05, float(sys.argv[2])\n"
    "with lease.owned(Path(sys.argv[1])):\n"
    "    print('owned', flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Let leases end within a test's patience."""
    monkeypatch.setattr(lease, "LEASE", 0.5)
    monkeypatch.setattr(lease, "RENEWED_EVERY", 0.05)


def left_behind(folder, owner=ELSEWHERE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "owner.json").write_text(json.dumps(asdict(owner)))


def start(folder, seconds=60.0):
    process = subprocess.Popen(
        [sys.executable, "-c", OWNS, folder, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"owned\n"
    return process


def test_a_folder_is_owned_once_and_free_afterwards(tmp_path):
    folder = tmp_path / "cell"
    with owned(folder, job="job 1") as owner:
        held = read_lease(folder)
        assert held.owner == owner
        assert (owner.machine, owner.pid, owner.job) == (this_machine(), os.getpid(), "job 1")
        with pytest.raises(Busy), owned(folder):
            pass
    assert list(folder.iterdir()) == []


def test_a_dead_owner_on_this_machine_is_replaced_immediately(tmp_path):
    folder = tmp_path / "cell"
    with start(folder) as process:
        assert Sightings().is_held(folder)
        with pytest.raises(Busy), owned(folder):
            pass
        process.kill()
    assert read_lease(folder) is not None
    assert not Sightings().is_held(folder)
    began = time.monotonic()
    with owned(folder):
        pass
    assert time.monotonic() - began < lease.LEASE


def test_an_owner_elsewhere_that_is_silent_loses_its_folder(tmp_path):
    folder = tmp_path / "cell"
    left_behind(folder)
    os.utime(folder / "owner.json", (2e9, 2e9))  # its clock is years ahead: it must not count
    seen = Sightings()
    assert seen.is_held(folder)
    time.sleep(lease.LEASE + 0.1)
    assert not seen.is_held(folder)
    with owned(folder, dead=seen.mark(folder)) as owner:  # who has seen it need not wait again
        assert read_lease(folder).owner == owner
    left_behind(folder)
    began = time.monotonic()
    with owned(folder):
        assert time.monotonic() - began >= lease.LEASE


def test_an_owner_elsewhere_that_renews_keeps_its_folder(tmp_path):
    folder = tmp_path / "cell"
    left_behind(folder)
    os.utime(folder / "owner.json", (1e9, 1e9))  # its clock is years behind
    mark = read_lease(folder).mark()
    os.utime(folder / "owner.json", (1e9, 1e9 + 1))
    seen = Sightings()
    for second in range(2, 10):
        assert seen.is_held(folder)
        os.utime(folder / "owner.json", (1e9, 1e9 + second))
        time.sleep(lease.LEASE / 4)
    renewing = (
        "import os, sys, time\n"
        "for i in range(200): os.utime(sys.argv[1], (1e9, 1e9 + 100 + i)); time.sleep(0.02)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", renewing, folder / "owner.json"])
    with other:
        with pytest.raises(Busy, match="node7"), owned(folder, dead=mark):
            pass
        other.kill()
    assert read_lease(folder).owner == ELSEWHERE


def test_of_two_that_saw_a_dead_owner_one_takes_over(tmp_path):
    folder = tmp_path / "cell"
    left_behind(folder)
    newer = replace(ELSEWHERE, token="newer", host="node8")
    dead = read_lease(folder)
    (folder / "owner.json").unlink()
    left_behind(folder, newer)
    with pytest.raises(Busy):
        lease._take_over(folder, dead)
    assert read_lease(folder).owner == newer


def test_an_owner_that_lost_its_folder_ends_without_saving(tmp_path):
    folder = tmp_path / "cell"
    with start(folder) as process:
        left_behind(folder)  # another machine took over
        assert process.wait(30) == BUSY
        assert b"another process may own it" in process.stderr.read()
    assert read_lease(folder).owner == ELSEWHERE


def test_an_owner_whose_disk_is_gone_ends_before_another_may_take_over(tmp_path):
    folder = tmp_path / "cell"
    with start(folder, seconds=1.0) as process:
        (tmp_path / "aside").mkdir()
        folder.rename(tmp_path / "aside" / "cell")
        folder.write_text("")  # neither found nor missing: an error
        assert process.wait(30) == BUSY


def test_without_locks_only_time_and_the_process_say_whether_an_owner_here_lives(
    tmp_path, monkeypatch
):
    no_locks = OSError(errno.ENOSYS, "no locks here")
    monkeypatch.setattr(files.fcntl, "flock", Mock(side_effect=no_locks))
    folder = tmp_path / "cell"
    with start(folder) as process:
        seen = Sightings()
        assert seen.is_held(folder)
        time.sleep(lease.LEASE + 0.1)
        assert seen.is_held(folder)
        with pytest.raises(Busy), owned(folder):
            pass
        process.kill()
        process.wait()
        assert not seen.is_held(folder)
        with owned(folder):
            pass


def test_a_full_disk_leaves_no_empty_lease(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(lease, "asdict", Mock(side_effect=full))
    folder = tmp_path / "cell"
    with pytest.raises(OSError, match=r"No space left.*owner\.json"), owned(folder):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("content", ["a pipe", b"", b"{", b"[]", b'{"token": 3}', b"\xff"])
def test_a_damaged_lease_is_one_of_an_unknown_owner(tmp_path, content):
    """Also if it is a pipe, for which nobody waits."""
    path = tmp_path / "owner.json"
    if content == "a pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    assert read_lease(tmp_path).owner.host == "unknown"
    assert Sightings().is_held(tmp_path)
    with owned(tmp_path) as owner:
        assert read_lease(tmp_path).owner == owner
