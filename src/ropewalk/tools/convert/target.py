"""A folder that appears complete or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ropewalk.files import is_alive, is_locked, locked, machine_name, shown_path

MOST_OF_A_NAME = 30  # characters of the target's name in that of its part
_PART = re.compile(r"\..*\.(\w+)-(\d{1,9})-\w+\.partial", re.DOTALL)
_own_parts: set[str] = set()


def check_target(source: Path, target: Path) -> None:
    """Raise ValueError unless a folder can be written at `target`, apart from `source`."""
    name = shown_path(target)
    if os.path.lexists(target):
        what = "an empty folder" if _is_empty(target) else "something"
        raise ValueError(f"OUT must not exist yet, but there is {what} at {name}; use another path")
    parent = target.parent
    if not parent.is_dir():
        raise ValueError(f"OUT must be in a folder that exists, got {name}")
    real, inside = Path(os.path.realpath(source)), Path(os.path.realpath(parent)) / target.name
    if inside.is_relative_to(real) or real.is_relative_to(inside):
        raise ValueError(f"OUT must not be inside IN, nor IN inside OUT, got {name}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ValueError(f"OUT must be in a folder that can be written to, got {name}")


def check_space(target: Path, needed: int) -> None:
    """Raise OSError if the disk of `target` has fewer bytes than that."""
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{needed:,} bytes are needed, but only {free:,} are free; nothing was written",
            os.fspath(target),
        )


@contextmanager
def complete_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder next to `target`, which gets that name if the block ends without error.

    Otherwise it is removed. A killed process leaves a hidden part, and the next call for this
    parent folder removes it.
    """
    remove_parts_of_folders(target.parent)
    own = f"{machine_name()}-{os.getpid()}-{secrets.token_hex(4)}"
    part = target.parent / f".{target.name[:MOST_OF_A_NAME]}.{own}.partial"
    _own_parts.add(part.name)
    try:
        part.mkdir()
        with locked(part):
            yield part
            _synchronize(part)
            _move(part, target)
        _synchronize(target.parent)
    finally:
        with suppress(OSError):
            shutil.rmtree(part)  # there is none if it was moved
        _own_parts.discard(part.name)


def remove_parts_of_folders(parent: Path) -> None:
    """Remove the parts that dead processes of this machine left in a folder."""
    for part in parent.glob(".*.partial"):
        found = _PART.fullmatch(part.name)
        if found is None or found[1] != machine_name() or part.name in _own_parts:
            continue
        own = int(found[2]) == os.getpid()  # an earlier process had the same number
        dead = own or not is_alive(int(found[2]))
        # A process in another container is not seen, but its lock is.
        if dead and part.is_dir() and not part.is_symlink() and not is_locked(part):
            shutil.rmtree(part, ignore_errors=True)


def _move(part: Path, target: Path) -> None:
    if os.path.lexists(target):  # `rename` would replace an empty folder
        raise ValueError(f"OUT must not exist yet, but {shown_path(target)} was made meanwhile")
    os.rename(part, target)


def _is_empty(path: Path) -> bool:
    try:
        return path.is_dir() and not any(path.iterdir())
    except OSError:
        return False


def _synchronize(folder: Path) -> None:
    """Write a folder's entries to the disk; some systems cannot."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
