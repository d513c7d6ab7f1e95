"""The contents of a config.json, from wherever they are. Plain JSON; no other library is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from ropewalk.rotary.config.values import JsonObject


def load_config(source: str | PathLike[str] | JsonObject) -> JsonObject:
    """Load the JSON of a path, a model's folder, a dictionary or a transformers config."""
    if isinstance(source, Mapping):
        return source
    if hasattr(source, "to_dict"):
        return cast(JsonObject, source.to_dict())
    if not isinstance(source, (str, PathLike)):
        raise TypeError(
            f"config must be a path, a dictionary or a transformers config, got {source!r}"
        )
    path = Path(fspath(source))
    try:
        path = path / "config.json" if path.is_dir() else path
        config = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_doubles)
    except FileNotFoundError:
        raise ValueError(
            f"config must be a config.json or its folder, got {path}: no such file"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"config must be a readable JSON file, or its contents as a dictionary, "
            f"got {str(path)[:200]}: {error}"
        ) from None
    if not isinstance(config, dict):
        raise ValueError(f"config must hold a JSON object, got {type(config).__name__} in {path}")
    return config


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of a file's pairs; no key may stand twice with different values."""
    values = dict(pairs)
    for key, value in pairs:
        if values[key] != value:
            raise ValueError(
                f"{key} must be given once, got {value!r} and {values[key]!r} in the same object"
            )
    return values
