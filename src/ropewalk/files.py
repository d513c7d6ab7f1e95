"""Files that are there whole or not at all, read up to a stated size; JSON."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import stat
import warnings
from pathlib import Path
from typing import Any

MOST_OF_A_NAME = 200  # characters of a path that a message repeats
MOST_JSON_BYTES = 2**24  # of a file of facts: ten times what the largest published results take
MOST_DATA_BYTES = 2**28  # of a file that grows with what was trained, scored or drawn
BYTES_OF_A_LIST = 16  # in which a JSON file may have one list or object, each some 200 in memory

#: What to do about a file of a run that is not what was written.
WAY_OUT = "delete it, and the same ropewalk compare or train, on the same folder, makes it again"

#: What a JSON file holds: plain data by name.
Facts = dict[str, Any]


def read_text(path: str | os.PathLike[str], most_bytes: int) -> str:
    """Read a regular file of UTF-8, of at most so many bytes.

    Raises ValueError as ``read_bytes``, and where the file is not UTF-8.
    """
    try:
        return read_bytes(path, most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown_path(path)}: not UTF-8 at byte {error.start}") from None


def read_bytes(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Read a regular file of at most so many bytes.

    Nothing else is waited for or read: a pipe, a device or a folder is an error before its first
    byte. Raises ValueError that names the file and what is wrong: it is missing, it is not
    readable by this user, it is no regular file, it is too large.
    """
    name = shown_path(path)
    try:
        # Opening a pipe without O_NONBLOCK waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise ValueError(f"{name}: no such file") from None
    except PermissionError:
        raise ValueError(f"{name}: no permission to read it") from None
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None
    except ValueError:  # NUL, or what no file system can hold
        raise ValueError(f"{name}: this cannot be the name of a file") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ValueError(f"{name}: {_kind(status.st_mode)}, which must be a regular file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most_bytes + 1) if status.st_size <= most_bytes else b""
        if status.st_size > most_bytes or len(content) > most_bytes:
            size = max(status.st_size, len(content))
            raise ValueError(f"{name}: {size:,} bytes, which must be at most {most_bytes:,}")
    return content


def shown_path(path: str | os.PathLike[str]) -> str:
    """Give a path as a message names it: without control characters, its middle cut if it is long.

    What ends a path tells most.
    """
    name, half = os.fspath(path), MOST_OF_A_NAME // 2
    if len(name) > MOST_OF_A_NAME:
        return f"{repr(name[:half])[1:-1]}…{repr(name[-half:])[1:-1]}"
    return repr(name)[1:-1]


def _kind(mode: int) -> str:
    """Name what is there instead of a regular file."""
    kinds = {
        "a folder": stat.S_ISDIR,
        "a pipe": stat.S_ISFIFO,
        "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
        "a socket": stat.S_ISSOCK,
    }
    return next((kind for kind, is_it in kinds.items() if is_it(mode)), "no regular file")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a crash, a full disk or Ctrl-C leaves the old one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{_machine()}-{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:  # a failed write does not name its file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, facts: Any) -> None:
    """Write facts as JSON, atomically."""
    write_bytes(path, (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode())


def readable_json(value: Any, indent: int = 0, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Write JSON with one line for what is short or a list of numbers, else one for each entry."""
    flat = json.dumps(value, ensure_ascii=False, separators=separators)
    numbers = isinstance(value, list) and all(isinstance(held, (int, float)) for held in value)
    if not isinstance(value, (dict, list)) or not value or numbers or len(flat) + indent <= 100:
        return flat
    space, deeper = " " * indent, indent + 1
    if isinstance(value, list):
        lines = [readable_json(held, deeper, separators) for held in value]
    else:
        lines = [
            f"{json.dumps(name, ensure_ascii=False)}: {readable_json(held, deeper, separators)}"
            for name, held in value.items()
        ]
    first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
    return f"{first}\n" + ",\n".join(f"{space} {line}" for line in lines) + f"\n{space}{last}"


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """Read a JSON file; one that is damaged, too large or no regular file is an error naming it."""
    try:
        text = read_text(path, most_bytes)
    except ValueError as error:
        way_out = WAY_OUT if path.exists() else WAY_OUT.partition(", and ")[2]
        raise ValueError(f"{error}; {way_out}") from None
    try:
        return parse_json(text, most_bytes)
    except ValueError as error:
        raise ValueError(
            f"{shown_path(path)} is not a JSON file that can be read: {error}; {WAY_OUT}"
        ) from None


def parse_json(text: str, most_bytes: int) -> Any:
    """Read JSON of a text that may have so many bytes; what is none is a ValueError of a line."""
    if text.count("{") + text.count("[") > most_bytes // BYTES_OF_A_LIST:
        raise ValueError(f"it has more than {most_bytes // BYTES_OF_A_LIST:,} lists and objects")
    try:
        return json.loads(text.removeprefix("\ufeff"))  # a byte order mark, of some editors
    except (ValueError, RecursionError) as error:
        raise ValueError(json_problem(error)) from None


def json_problem(error: Exception) -> str:
    """Say why JSON was not read; Python's words are of its settings and of places in a string."""
    if isinstance(error, json.JSONDecodeError):
        if not error.doc.strip():
            return "it is empty"
        what = "the end" if error.pos >= len(error.doc.rstrip()) else "what stands"
        return f"{what} at line {error.lineno}, column {error.colno} is not JSON"
    if isinstance(error, RecursionError):
        return "its lists and objects lie too deep in one another"
    return "it has an integer of too many digits"


def digest_of(facts: Any) -> str:
    """Give the SHA-256 of facts as JSON, whatever the order of their names."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_checked_json(path: Path, facts: Facts) -> None:
    """Write facts as JSON, atomically, with a checksum of them among them."""
    plain = json.loads(json.dumps(facts))  # as they will be read: tuples are lists, names are text
    write_json(path, {**facts, "checksum": digest_of(plain)})


def read_checked_json(
    path: Path, *needed: str, most_bytes: int = MOST_JSON_BYTES, unchecked: bool = False
) -> Facts:
    """Read what ``write_checked_json`` wrote; a file without a checksum is read with a warning.

    With ``unchecked`` there is none: the file is one of those that are kept without. Raises
    ValueError where the file does not give its checksum or lacks a fact that is needed.
    """
    held = read_json(path, most_bytes)
    if not isinstance(held, dict):
        raise ValueError(f"{path} must hold facts by name, got a {type(held).__name__}; {WAY_OUT}")
    checksum = held.pop("checksum", None)
    if checksum is not None and checksum != digest_of(held):
        raise ValueError(f"{path} is damaged: it does not give its checksum; {WAY_OUT}")
    lacking = [name for name in needed if name not in held]
    if checksum is None and not unchecked and not lacking:
        warn_unchecked(path)
    if lacking:
        raise ValueError(f"{path} has no {lacking[0]!r}; {WAY_OUT}")
    return held


def warn_unchecked(path: Path) -> None:
    """Say, once for a folder, that a file there was written before files had checksums."""
    warnings.warn_explicit(
        f"{path.parent} has files of an earlier version, without a checksum: damage in them would "
        f"not be seen",
        UserWarning,
        __file__,
        1,
        registry=_warned,  # of this module: whoever reads, it is said once
    )


_warned: dict[str | tuple[str, type[Warning], int], int] = {}


def remove_parts(folder: Path) -> None:
    """Remove what writers that have died since left unfinished in a folder.

    A part names the machine and the process that wrote it; one of another machine is left alone,
    and so is one of a process that is still there.
    """
    for part in folder.glob(".*.part"):
        found = _PART.fullmatch(part.name)
        if found and found[1] in (None, _machine()) and not _is_alive(int(found[2])):
            part.unlink(missing_ok=True)


_PART = re.compile(r"\..*?\.(?:(\w+)-)?(\d{1,9})\.part", re.DOTALL)


def _machine() -> str:
    return re.sub(r"\W+", "_", platform.node())[:40] or "unknown"


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # an earlier process of the same number: this one has just begun
        return False
    if os.name == "nt":  # Windows has no way to ask that does no harm
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
