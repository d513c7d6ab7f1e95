"""A lock on a folder; the system frees it when the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Busy(Exception):  # noqa: N818, not an error
    """Another process uses the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, creating it if needed. Raises `Busy` if another process has locked it.

    The folder itself is locked: no lock file is left over, however the process ends. Windows and
    some network file systems have no such lock; there nothing is locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process uses {folder}") from None
        except OSError:
            pass  # this file system has no locks
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Return whether another process has locked a folder now."""
    if not folder.is_dir():
        return False
    try:
        with locked(folder):
            return False
    except Busy:
        return True
