"""Files and folders that are written completely or not at all, safe reading, JSON, and locks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl

MOST_OF_A_NAME = 200  # characters of a path that a message repeats
MOST_JSON_BYTES = 2**24  # of a file of facts: ten times what the largest published results take
MOST_DATA_BYTES = 2**28  # of a file that grows with the training, the scores or the figures
BYTES_OF_A_LIST = 16  # of a JSON file for each list or object, which takes some 200 in memory

LOCK_PATIENCE = 0.2  # seconds; a process that only looks holds the lock for much less

_MADE_AGAIN = "the same ropewalk compare or train, on the same folder, makes it again"
#: What to do about a damaged file of a run.
WAY_OUT = f"delete it, and {_MADE_AGAIN}"
_KEEP = "do not delete it: give this user the permission to read it, or restore it from a copy"

#: The content of a JSON file: plain data by name.
Facts = dict[str, Any]


class NotReadError(ValueError):
    """A file that was not read, though nothing says that it is damaged."""


def way_out(path: Path, error: ValueError) -> str:
    """Return what to do about a file of a run that was not read: only a damaged one is deleted."""
    unread = _KEEP if os.path.lexists(path) else _MADE_AGAIN
    return unread if isinstance(error, NotReadError) else WAY_OUT


def read_text(path: str | os.PathLike[str], most_bytes: int) -> str:
    """Return the text of a regular UTF-8 file of at most `most_bytes`.

    Raises ValueError as `read_bytes` does, and if the file is not UTF-8.
    """
    try:
        return read_bytes(path, most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown_path(path)}: not UTF-8 at byte {error.start}") from None


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a regular file of at most `most_bytes`.

    A pipe, a device or a folder is an error before its first byte is read, without waiting. Raises
    NotReadError that names the file and the reason: it is missing, not readable by this user, not a
    regular file, or too large.
    """
    with open_regular(path) as file:
        stated = os.fstat(file.fileno()).st_size
        content = file.read(most_bytes + 1) if stated <= most_bytes else b""
        size = max(stated, len(content))
        if size > most_bytes:
            raise NotReadError(
                f"{shown_path(path)}: {size:,} bytes, but at most {most_bytes:,} are allowed"
            )
    return content


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; symlinks are followed.

    Raises NotReadError that names the file and the reason.
    """
    name = shown_path(path)
    try:
        descriptor = _descriptor(path)
    except FileNotFoundError:
        link = os.path.islink(path)
        what = "a symlink to a file that is missing" if link else "no such file"
        raise NotReadError(f"{name}: {what}") from None
    except PermissionError:
        raise NotReadError(f"{name}: no permission to read it") from None
    except OSError as error:  # also a loop of symlinks
        raise NotReadError(f"{name}: {error.strerror}") from None
    except ValueError:  # NUL, or text that no file system can encode
        raise NotReadError(f"{name}: this cannot be the name of a file") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kinds = {
            "a folder": stat.S_ISDIR,
            "a pipe": stat.S_ISFIFO,
            "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
            "a socket": stat.S_ISSOCK,
        }
        kind = next((kind for kind, is_it in kinds.items() if is_it(mode)), "a special file")
        raise NotReadError(f"{name}: {kind}, not a regular file")
    return os.fdopen(descriptor, "rb")


def open_now(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading without waiting for a writer, should it be a pipe."""
    return os.fdopen(_descriptor(path), "rb")


def _descriptor(path: str | os.PathLike[str]) -> int:
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as a message shows it: without control characters, cut in the middle if long.

    The end of a path tells most.
    """
    name, half = os.fspath(path), MOST_OF_A_NAME // 2
    if len(name) > MOST_OF_A_NAME:
        return f"{repr(name[:half])[1:-1]}…{repr(name[-half:])[1:-1]}"
    return repr(name)[1:-1]


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a crash, a full disk or Ctrl-C leaves the old file, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _part_of(path) as part:
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except OSError as error:  # the error of a failed write does not name its file
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            with suppress(OSError):  # the error above says more
                part.unlink(missing_ok=True)


def write_json(path: Path, facts: Any) -> None:
    """Write facts as JSON, atomically."""
    write_bytes(path, (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())


def readable_json(value: Any, indent: int = 0, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return JSON with one line for short values and lists of numbers, else one for each entry."""
    flat = json.dumps(value, ensure_ascii=False, separators=separators)
    numbers = isinstance(value, list) and all(isinstance(entry, (int, float)) for entry in value)
    if not isinstance(value, (dict, list)) or not value or numbers or len(flat) + indent <= 100:
        return flat
    space, deeper = " " * indent, indent + 1
    if isinstance(value, list):
        lines = [readable_json(entry, deeper, separators) for entry in value]
    else:
        lines = [
            f"{json.dumps(name, ensure_ascii=False)}: {readable_json(entry, deeper, separators)}"
            for name, entry in value.items()
        ]
    first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
    return f"{first}\n" + ",\n".join(f"{space} {line}" for line in lines) + f"\n{space}{last}"


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """Return a JSON file's content; raise ValueError if it is damaged, else NotReadError."""
    try:
        text = read_text(path, most_bytes)
    except ValueError as error:
        raise type(error)(f"{error}; {way_out(path, error)}") from None
    try:
        return parse_json(text, most_bytes)
    except ValueError as error:
        raise ValueError(
            f"{shown_path(path)} is not a JSON file that can be read: {error}; {WAY_OUT}"
        ) from None


def parse_json(text: str, most_bytes: int) -> Any:
    """Return the JSON of a text of at most `most_bytes`; raise ValueError with the reason."""
    if text.count("{") + text.count("[") > most_bytes // BYTES_OF_A_LIST:
        raise ValueError(f"it has more than {most_bytes // BYTES_OF_A_LIST:,} lists and objects")
    try:
        return json.loads(text.removeprefix("\ufeff"))  # some editors write a byte order mark
    except (ValueError, RecursionError) as error:
        raise ValueError(json_problem(error)) from None


def json_problem(error: Exception) -> str:
    """Return why JSON was not read; Python's messages have its settings and string offsets."""
    if isinstance(error, json.JSONDecodeError):
        if not error.doc.strip():
            return "it is empty"
        what = "the end" if error.pos >= len(error.doc.rstrip()) else "the text"
        return f"{what} at line {error.lineno}, column {error.colno} is not JSON"
    if isinstance(error, RecursionError):
        return "its lists and objects are nested too deep"
    return "it has an integer of too many digits"


def digest_of(facts: Any) -> str:
    """Return the SHA-256 of facts as JSON, whatever the order of their names."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_checked_json(path: Path, facts: Facts) -> None:
    """Write facts as JSON, atomically, and include a checksum of them."""
    plain = json.loads(json.dumps(facts))  # as they are read back: tuples become lists
    write_json(path, {**facts, "checksum": digest_of(plain)})


def read_checked_json(
    path: Path, *needed: str, most_bytes: int = MOST_JSON_BYTES, unchecked: bool = False
) -> Facts:
    """Return facts that `write_checked_json` wrote.

    With `unchecked` the file may have no checksum, but not under another name. Raises ValueError if
    the content lacks a fact that is needed, or does not match its checksum.
    """
    facts = read_json(path, most_bytes)
    if not isinstance(facts, dict):
        raise ValueError(f"{path} must have facts by name, got a {type(facts).__name__}; {WAY_OUT}")
    checksum = facts.pop("checksum", None)
    if lacking := [name for name in needed if name not in facts]:
        raise ValueError(f"{path} has no {lacking[0]!r}; {WAY_OUT}")
    damaged = checksum != digest_of(facts)
    if unchecked and checksum is None:
        texts = {name for name, held in facts.items() if isinstance(held, str) and len(held) == 64}
        damaged = any(facts[n] == digest_of({k: facts[k] for k in facts if k != n}) for n in texts)
    if damaged:
        raise ValueError(f"{path} is damaged: it does not match its checksum; {WAY_OUT}")
    return facts


MOST_OF_A_PART = 30  # characters of the target's name in that of its part
_own_parts: set[str] = set()


@contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """Yield where a file or folder is written before it gets the name of `target`.

    The hidden name says which machine and process write it.
    """
    own = f"{machine_name()}-{os.getpid()}-{os.urandom(4).hex()}"
    part = target.with_name(f".{target.name[:MOST_OF_A_PART]}.{own}.part")
    _own_parts.add(part.name)
    try:
        yield part
    finally:
        _own_parts.discard(part.name)


def remove_parts(folder: Path) -> None:
    """Remove the unfinished files and folders that dead processes of this machine left."""
    for part in folder.glob(".*.part"):
        writer = re.fullmatch(r"\..*\.(\w+)-(\d{1,9})-\w+\.part", part.name, re.DOTALL)
        if writer is None or writer[1] != machine_name() or part.name in _own_parts:
            continue
        if is_alive(int(writer[2])):
            continue
        if part.is_symlink() or not part.is_dir():
            part.unlink(missing_ok=True)
        elif not is_locked(part):  # the lock of a process in another container is seen
            shutil.rmtree(part, ignore_errors=True)


def machine_name() -> str:
    """Return this machine's name as names of unfinished files have it."""
    return re.sub(r"\W+", "_", platform.node())[:40] or "unknown"


def is_alive(pid: int) -> bool:
    """Return whether another process with this number runs; False for the number of this one."""
    if pid == os.getpid():  # an earlier process had the same number: this one has just started
        return False
    if os.name == "nt":  # Windows has no harmless way to check
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


class NotWrittenError(OSError):
    """A folder or file could not be written, and the message says what became of it."""


class Busy(Exception):  # noqa: N818, not an error
    """Another process uses the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, creating it if needed. Raises `Busy` if another process has locked it.

    Raises ValueError if this user cannot write to it. The folder itself is locked: no lock file is
    left over, however the process ends. Windows and some network file systems have no such lock;
    there nothing is locked.
    """
    with suppress(PermissionError):
        folder.mkdir(parents=True, exist_ok=True)
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective):
        rule = "must be a folder that this user can read and write; give this user the permission"
        raise ValueError(f"{shown_path(folder)} {rule}")
    if sys.platform == "win32":  # it cannot open a folder
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + LOCK_PATIENCE
        while _try_lock(handle, exclusive=True) is False:
            if time.monotonic() > until:
                raise Busy(f"another process uses {folder}")
            time.sleep(LOCK_PATIENCE / 10)
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
        free = _try_lock(handle, exclusive=False)  # shared: several may look at the same time
        return None if free is None else not free
    finally:
        os.close(handle)


def _try_lock(handle: int, *, exclusive: bool) -> bool | None:
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


def check_target(source: Path, target: Path) -> None:
    """Raise ValueError unless a folder can be written at `target`, apart from `source`."""
    name = shown_path(target)
    if os.path.lexists(target):
        what = "something"
        with suppress(OSError):
            if target.is_dir() and not any(target.iterdir()):
                what = "an empty folder"
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
        raise NotWrittenError(
            errno.ENOSPC,
            f"{needed:,} bytes are needed, but only {free:,} are free; nothing was written",
            os.fspath(target),
        )


@contextmanager
def complete_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder next to `target`, which gets that name if the block ends without error.

    Otherwise it is removed, and an OSError becomes a NotWrittenError. A killed process leaves a
    hidden part, and the next call for this parent folder removes it.
    """
    remove_parts(target.parent)
    with _part_of(target) as part:
        try:
            part.mkdir()
            with locked(part):
                yield part
                _synchronize(part)
                _move(part, target)
            _synchronize(target.parent)
        except NotWrittenError:
            raise
        except OSError as error:  # the error of a failed write does not name its file
            full = error.errno == errno.ENOSPC
            reason = "the disk is full" if full else error.strerror or str(error)
            raise NotWrittenError(
                error.errno, f"{reason}; OUT was not written", os.fspath(target)
            ) from error
        finally:
            with suppress(OSError):
                shutil.rmtree(part)  # there is none if it was moved


def _move(part: Path, target: Path) -> None:
    if os.path.lexists(target):  # `rename` would replace an empty folder
        raise ValueError(f"OUT must not exist yet, but {shown_path(target)} was made meanwhile")
    os.rename(part, target)


def _synchronize(folder: Path) -> None:
    """Write a folder's entries to the disk; some systems cannot."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
