"""Files that are there whole or not at all, and JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

#: What a JSON file holds: plain data by name.
Facts = dict[str, Any]


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
