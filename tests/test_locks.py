"""Locks of folders: these fail if two processes work in one, or if a lock outlives its process."""

import os
import subprocess
import sys
import threading

import pytest

from ropewalk import files
from ropewalk.files import Busy, is_locked, locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")

HOLD = (
    "import sys, pathlib\n"
    "from ropewalk.files import locked\n"
    "with locked(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def test_a_lock_is_held_by_one_and_freed_by_a_kill(tmp_path):
    folder = tmp_path / "cell"
    assert not is_locked(folder)
    assert not folder.exists()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout.readline() == b"held\n"
        assert is_locked(folder)
        with pytest.raises(Busy), locked(folder):
            pass
        other.kill()
    assert not is_locked(folder)
    with locked(folder):
        assert list(folder.iterdir()) == []


def test_who_only_looks_keeps_nobody_out(tmp_path):
    looker = os.open(tmp_path, os.O_RDONLY)
    files.fcntl.flock(looker, files.fcntl.LOCK_SH)
    assert not is_locked(tmp_path)
    threading.Timer(files.LOCK_PATIENCE / 4, os.close, [looker]).start()
    with locked(tmp_path):
        assert is_locked(tmp_path)


def test_a_file_system_without_locks_says_so(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(files.fcntl, "flock", refused)
    with locked(tmp_path):
        assert is_locked(tmp_path) is None
