"""Files that are there whole or not at all, read up to a stated size; JSON."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from ropewalk.checks import shown

#: What a JSON file holds: plain data by name.
Facts = dict[str, Any]


def read_text(path: str | os.PathLike[str], most_bytes: int) -> str:
    """Read a regular file of UTF-8, of at most so many bytes.

    Nothing else is waited for or read: a pipe, a device or a folder is an error before its first
    byte. Raises ValueError that names the file and what is wrong: it is missing, it is not
    readable by this user, it is no regular file, it is too large, it is not UTF-8.
    """
    name = shown(os.fspath(path), 200)[1:-1]
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
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 at byte {error.start}") from None


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
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
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


def read_json(path: Path) -> Any:
    """Read a JSON file; one that is damaged is an error that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file that can be read: {error}") from None
