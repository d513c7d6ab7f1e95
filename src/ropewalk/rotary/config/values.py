"""Values of a config.json, checked as they are read; errors name the key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]

MAX_SIZE = 2**40  # no size or length is larger; floats hold it exactly


def first_present(values: JsonObject, keys: tuple[str, ...]) -> str | None:
    """Return the first of these keys that has a value, None if none has."""
    return next((key for key in keys if values.get(key) is not None), None)


def positive_int(values: JsonObject, *keys: str) -> int:
    """Return the value of the first of these keys that is there, an integer above 0."""
    key = first_present(values, keys)
    if key is None:
        others = f", got none of {', '.join(keys)}" if len(keys) > 1 else ""
        raise ValueError(f"{keys[0]} must be given{others}")
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} must be an integer above 0, got {value!r}")
    if value > MAX_SIZE:
        raise ValueError(f"{key} must be at most {MAX_SIZE:,}, got {value}")
    return value


def positive_float(key: str, value: Any, *, zero: bool = False) -> float:
    """Return this value of a key: a finite number above 0, or 0 itself where `zero` lets it in."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} must be a number, got {value!r}")
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        bounds = "finite and not negative" if zero else "finite and above 0"
        raise ValueError(f"{key} must be {bounds}, got {value!r}")
    return value


def as_list(key: str, value: Any) -> list[Any]:
    """Return this value of a key, which must be a list."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{key} must be a list, got {value!r}")
    return list(value)
