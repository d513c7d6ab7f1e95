"""One process at a time in a cell's folder, by a lock that the system frees when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Busy(Exception):  # noqa: N818, it is no error
    """Another process works in the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made where it is not there; raise ``Busy`` where another process holds it.

    The folder itself is locked, so that no file is left behind, whatever ends the process. Where
    the system or the file system has no such lock (Windows, some network file systems), nothing
    is kept apart.
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
            raise Busy(f"another process works in {folder}") from None
        except OSError:
            pass  # this file system has no locks
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Tell whether another process holds a folder at this moment."""
    if not folder.is_dir():
        return False
    try:
        with locked(folder):
            return False
    except Busy:
        return True
