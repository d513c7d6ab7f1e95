"""Checks of the values of a config.json; errors name the key."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.checks import as_python, shown

JsonObject = Mapping[str, Any]

# Keys of the context, in positions, that a model states; the first that is present counts.
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length",
    "model_max_length", "n_ctx",
)  # fmt: skip

# Bounds, each many times what published models have, so that no config causes endless work.
MAX_SIZE = 2**24  # widths and counts: 16,777,216; the widest have some 20,000
MAX_LENGTH = 2**31  # in positions; the longest have 10,000,000
LEAST_NUMBER, MOST_NUMBER = 1e-9, 1e9  # of factors; published ones have 0.1 to 100,000
LEAST_THETA, MOST_THETA = 1.0, 1e15  # published models have 100 to 100,000,000


def first_present(values: JsonObject, keys: tuple[str, ...]) -> str | None:
    """Return the first of these keys that has a value, or None if none has."""
    return next((key for key in keys if values.get(key) is not None), None)


def positive_int(values: JsonObject, *keys: str, most: int = MAX_SIZE) -> int:
    """Return the value of the first of these keys that is present, an integer above 0."""
    key = first_present(values, keys)
    if key is None:
        others = f", got none of {', '.join(keys)}" if len(keys) > 1 else ""
        raise ValueError(f"{keys[0]} must be given{others}")
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"{key} must be an integer above 0, got {shown(value)}{_as_python(key, value)}"
        )
    if value > most:
        raise ValueError(f"{key} must be at most {most:,}, got {shown(value)}")
    return value


def positive_float(
    key: str,
    value: Any,
    *,
    zero: bool = False,
    least: float = LEAST_NUMBER,
    most: float = MOST_NUMBER,
) -> float:
    """Return this value of a key: from `least` to `most`, or 0 if `zero` allows it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} must be a number, got {shown(value)}{_as_python(key, value)}")
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        bounds = "finite and not negative" if zero else "finite and above 0"
        raise ValueError(f"{key} must be {bounds}, got {shown(value)}")
    if value and not least <= value <= most:
        raise ValueError(f"{key} must lie between {least:g} and {most:g}, got {shown(value)}")
    return value


def positive_theta(key: str, value: Any) -> float:
    """Return this value of a key: a base of frequencies."""
    return positive_float(key, value, least=LEAST_THETA, most=MOST_THETA)


def positive_length(key: str, value: Any, least: int = 1) -> int:
    """Return this value of a key: a number of positions; 4096.0 is one, as some files have it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"{key} must be an integer above {least - 1}, got {shown(value)}"
            f"{_as_python(key, value)}"
        )
    if value > MAX_LENGTH:
        raise ValueError(f"{key} must be at most {MAX_LENGTH:,}, got {shown(value)}")
    return value


def _as_python(key: str, value: object) -> str:
    """Return what is wrong with a number of another library, which JSON never has; else ""."""
    way_out = as_python(key, value)
    kind = type(value).__name__
    return f", of type {kind}, which is not a Python number{way_out}" if way_out else ""


def as_list(key: str, value: Any) -> Sequence[Any]:
    """Return this value of a key, which must be a list."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{key} must be a list, got {shown(value)}")
    return value
