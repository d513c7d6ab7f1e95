"""A lock on a folder; the system frees it when the process ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


PATIENCE = 0.2  # seconds; a process that only looks holds the lock for much less


class Busy(Exception):  # noqa: N818, not an error
    """Another process uses the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, creating it if needed. Raises `Busy` if another process has locked it.

    The folder itself is locked: no lock file is left over, however the process ends. Windows and
    some network file systems have no such lock; there nothing is locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":  # it cannot open a folder
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while _try(handle, exclusive=True) is False:
            if time.monotonic() > until:
                raise Busy(f"another process uses {folder}")
            time.sleep(PATIENCE / 10)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path) -> bool | None:
    """Return whether another process has locked a folder now; None if nothing can be locked."""
    if sys.platform == "win32":
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # missing, or not for this user
        return False
    try:
        free = _try(handle, exclusive=False)  # shared: several may look at the same time
        return None if free is None else not free
    finally:
        os.close(handle)


def _try(handle: int, *, exclusive: bool) -> bool | None:
    """Return whether a folder could be locked; None if its file system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
