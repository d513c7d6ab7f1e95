"""Files read up to a stated size, and only regular ones; locks of folders.

These fail when a pipe or a device is waited for, when a file is read that is larger than stated,
when what is wrong with a file is called by the wrong name, when two processes work in one folder,
and when a lock outlives its process.
"""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest

from ropewalk import files
from ropewalk.files import Busy, is_locked, locked, read_json, read_text, shown_path


def refused(path: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        read_text(path, 100)
    assert len(str(caught.value)) < 300


def test_reads_text(tmp_path):
    (tmp_path / "a").write_bytes("ä".encode() * 50)
    assert read_text(tmp_path / "a", 100) == "ä" * 50
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert read_text(str(tmp_path / "link"), 100) == "ä" * 50


def test_what_is_too_large_no_text_or_not_there(tmp_path):
    refused(tmp_path / "a", "a: no such file")
    (tmp_path / "a").write_bytes(b"x" * 101)
    refused(tmp_path / "a", "a: 101 bytes, but at most 100 are allowed")
    (tmp_path / "a").write_bytes(b"abc\xff")
    refused(tmp_path / "a", "a: not UTF-8 at byte 3")
    refused("a\0b", "this cannot be the name of a file")
    refused("\ud800", "this cannot be the name of a file")
    refused("x" * 300_000, "File name too long")


@pytest.mark.skipif(sys.platform != "linux", reason="needs files of Linux")
def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe: a pipe, not a regular file")
    refused(tmp_path, "a folder, not a regular file")
    refused("/dev/zero", "/dev/zero: a device, not a regular file")


def test_a_file_system_that_says_no(monkeypatch):
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    refused("a", "a: no permission to read it")


@pytest.mark.skipif(os.name == "nt", reason="has no such permissions")
def test_a_folder_of_another_user_is_named_with_the_way_out():
    """Fails if it is a raw error of the system, or one after an hour of work."""
    before = os.geteuid()
    with TemporaryDirectory() as top:
        os.chmod(top, 0o555)
        try:
            os.seteuid(before or 65534)  # no permission counts for root
            for folder in (Path(top), Path(top, "a")):
                with pytest.raises(ValueError, match=f"{folder} must be .*; give"), locked(folder):
                    pass
        finally:
            os.seteuid(before)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"{", "the end at line 1, column 2 is not JSON"),
        (b'{"a":\n x}', "the text at line 2, column 2 is not JSON"),
        (b"9" * 5000, "it has an integer of too many digits"),
        (b"[" * 100_000, "its lists and objects are nested too deep"),
    ],
)
def test_json_that_cannot_be_read_is_told_in_our_words_with_the_way_out(tmp_path, content, said):
    (tmp_path / "x1.json").write_bytes(content)
    with pytest.raises(ValueError, match=f"x1.json .* read: {re.escape(said)}; delete it, and"):
        read_json(tmp_path / "x1.json")


def test_json_that_is_missing_or_has_a_byte_order_mark(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(ValueError, match="no such file; the same ropewalk compare or train"):
        read_json(path)
    path.write_bytes(b" " * 101)
    with pytest.raises(ValueError, match="101 bytes, but at most 100 are allowed; do not delete"):
        read_json(path, 100)
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_a_long_path_is_shown_by_both_its_ends():
    assert shown_path("a/b") == "a/b"
    assert shown_path("a\x1b\x07") == "a\\x1b\\x07"
    shown = shown_path("/first" + "x" * 120_000 + "/last.json")
    assert len(shown) < 250
    assert shown.startswith("/first")
    assert shown.endswith("/last.json")


locks = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
HOLD = (
    "import sys, pathlib\n"
    "from ropewalk.files import locked\n"
    "with locked(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@locks
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


@locks
def test_who_only_looks_keeps_nobody_out(tmp_path):
    looker = os.open(tmp_path, os.O_RDONLY)
    files.fcntl.flock(looker, files.fcntl.LOCK_SH)
    assert not is_locked(tmp_path)
    threading.Timer(files.LOCK_PATIENCE / 4, os.close, [looker]).start()
    with locked(tmp_path):
        assert is_locked(tmp_path)


@locks
def test_a_file_system_without_locks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files.fcntl, "flock", Mock(side_effect=OSError("no locks here")))
    with locked(tmp_path):
        assert is_locked(tmp_path) is None
