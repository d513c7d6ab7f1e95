"""Load the contents of a config.json from any source, as plain JSON, without other libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ropewalk.checks import shown
from ropewalk.files import json_problem, read_text
from ropewalk.rotary.config.values import JsonObject

# Bounds, each many times what published files have, so that no file causes endless work.
MAX_BYTES = 4 * 2**20  # a few have 1 MB, of labels
MAX_DEPTH = 64  # of nested objects and lists; they have 6
MAX_VALUES = 3_000_000  # in all objects and lists together
MAX_BITS = 10_000  # of an integer; Python refuses more than 4,300 digits
MAX_KEYS = 10_000  # of one section; they have 200


def load_config(source: str | PathLike[str] | JsonObject) -> JsonObject:
    """Load the JSON of a path, a model's folder, a dictionary or a transformers config."""
    if isinstance(source, Mapping):
        config: Any = source
    elif hasattr(source, "to_dict") and not isinstance(source, type):
        config = source.to_dict()
        if isinstance(config, Mapping) and not config.get("model_type"):  # Evolla's SaProt
            config = {**config, "model_type": type(source).__name__}
    elif isinstance(source, (str, PathLike)):
        config = _read(fspath(source))
    else:
        raise TypeError(
            f"config must be a path, a dictionary or a transformers config, got {shown(source)}"
        )
    if not isinstance(config, Mapping):
        raise ValueError(
            f"config must be a JSON object, got {type(config).__name__} in {shown(source, 200)}"
        )
    check_bounds(config)
    return config


def _read(path: str) -> Any:
    try:
        # A path with a NUL is not a folder; `read_text` raises for it.
        file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
        text = read_text(file, MAX_BYTES)
    except (ValueError, OSError) as error:
        # An error of `read_text` names the file; an OSError of `is_dir` does not.
        reason = f"{shown(path, 200)}: {error.strerror}" if isinstance(error, OSError) else error
        raise ValueError(f"config must be a config.json or its folder, got {reason}") from None
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_without_doubles)
    except DoubledKeyError:
        raise
    except RecursionError:
        raise ValueError(
            f"config must be at most {MAX_DEPTH} objects and lists deep, "
            f"got more in {shown(str(file), 200)}"
        ) from None
    except ValueError as error:
        reason = json_problem(error)
    raise ValueError(
        f"config must be a readable JSON file, or its contents as a dictionary, "
        f"got {shown(str(file), 200)}: {reason}"
    ) from None


class DoubledKeyError(ValueError):
    """A key that one object has twice, with different values."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a file's object; raise if it has a key twice, with different values."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    for key, value in pairs:
        if value != values[key] and not (value != value and values[key] != values[key]):
            raise DoubledKeyError(
                f"{named(key)} must be given once, got {shown(value)} and {shown(values[key])} "
                f"in the same object"
            )
    return values


def named(key: object) -> str:
    """Return a key as a message shows it: bare if it is a plain word, cut if it is long."""
    plain = isinstance(key, str) and len(key) <= 80 and key.isascii() and key.isprintable()
    return str(key) if plain else shown(key)


def check_bounds(config: JsonObject) -> None:
    """Raise if a config is deeper or larger than that of any model."""
    level: list[Any] = [config]
    count = 0
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            is_object = isinstance(each, Mapping)
            count += len(each)
            if count > MAX_VALUES:
                raise ValueError(f"config must have at most {MAX_VALUES:,} values, got more")
            values = each.values() if is_object else each
            if any(type(value) is int and value.bit_length() > MAX_BITS for value in values):
                raise ValueError(
                    f"config must have integers of at most {MAX_BITS:,} bits, got more"
                )
            inner.extend(value for value in values if isinstance(value, (Mapping, list, tuple)))
        if not inner:
            return
        level = inner
    raise ValueError(f"config must be at most {MAX_DEPTH} objects and lists deep, got more")
