"""Numbers of figures, read from anything that numpy reads, and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from ropewalk.checks import shown

MOST_SHADES = 2**20  # more than a screen has pixels for

Row = list[float]
Table = list[Row]
Values = TypeVar("Values", bound=Sequence[Any])

Numbers: TypeAlias = Any
"""A row of numbers: a list, a range, an array or a tensor."""

Matrix: TypeAlias = Any
"""Rows of numbers, all of the same length: lists, an array or a tensor."""


def row(name: str, value: Any, *, least: int = 1, gaps: bool = False) -> Row:
    """Return a row of at least `least` numbers; with `gaps`, nan marks numbers that are missing.

    Raises ValueError that names the argument if the value is anything else.
    """
    array = _array(name, value, "a row of numbers", 1)
    if len(array) < least:
        many = "number" if least == 1 else "numbers"
        raise ValueError(f"{name} must have at least {least} {many}, got {len(array)}")
    numbers: Row = array.tolist()
    for place, number in enumerate(numbers):
        if not math.isfinite(number) and not (gaps and math.isnan(number)):
            raise ValueError(f"{name} must be finite, got {number} at index {place}")
    return numbers


def table(name: str, value: Any) -> Table:
    """Return rows of the same length, at least one, with at least one number each."""
    array = _array(name, value, "rows of numbers, all of the same length", 2)
    if array.size > MOST_SHADES:
        raise ValueError(
            f"{name} must have at most 2^20 numbers, got shape {array.shape}; choose some rows, "
            f"such as {name}[::8]"
        )
    if not array.size:
        raise ValueError(f"{name} must have at least one number, got shape {array.shape}")
    rows: Table = array.tolist()
    for r, numbers in enumerate(rows):
        for c, number in enumerate(numbers):
            if not math.isfinite(number):
                raise ValueError(f"{name} must be finite, got {number} in row {r}, column {c}")
    return rows


def positive(name: str, value: Any, *, least: int = 1, gaps: bool = False) -> Row:
    """Return a row of numbers above 0."""
    numbers = row(name, value, least=least, gaps=gaps)
    for place, number in enumerate(numbers):
        if number <= 0:
            raise ValueError(f"{name} must be above 0, got {number} at index {place}")
    return numbers


def increasing(name: str, value: Any, *, least: int = 1) -> Row:
    """Return a row of numbers, each larger than the one before."""
    numbers = row(name, value, least=least)
    for place in range(1, len(numbers)):
        if numbers[place] <= numbers[place - 1]:
            raise ValueError(
                f"{name} must increase, got {numbers[place]} after {numbers[place - 1]}; "
                "sort them and remove repeated ones"
            )
    return numbers


def like(name: str, numbers: Values, other_name: str, other: Sequence[Any]) -> Values:
    """Return the numbers; raise ValueError unless there are as many as in the other row."""
    if len(numbers) != len(other):
        raise ValueError(
            f"{name} must have one number for each of the {len(other)} {other_name}, "
            f"got {len(numbers)}"
        )
    return numbers


def named(name: str, value: Any) -> dict[str, Any]:
    """Return a mapping with at least one entry as a dict; its keys are the words of the legend."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{name} must be a dict from names to numbers, got {shown(value)}; "
            'write {"a name": numbers}'
        )
    if not value:
        raise ValueError(f"{name} must have at least one entry, got an empty dict")
    return {str(key): held for key, held in value.items()}


def short(number: float) -> str:
    """Return a number as alternative texts write it: at most three digits, or a whole number."""
    number += 0.0  # -0.0 would be written "-0"
    if number and not 1e-3 <= abs(number) < 1e10:
        return f"{number:.2g}"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def span(numbers: list[float], join: str = "to") -> str:
    """Return the least and the largest number in words, or one word if these are the same."""
    low, high = short(min(numbers)), short(max(numbers))
    return low if low == high else f"{low} {join} {high}"


def listed(words: list[str]) -> str:
    """Return the words as a sentence lists them."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def numpy() -> ModuleType:
    """Return numpy; raise ImportError that names the extra if it or matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
        import numpy as module
    except ImportError:
        raise ImportError(
            "figures need matplotlib and numpy, which are not installed: "
            "pip install 'ropewalk[lab]'"
        ) from None
    return module


def _array(name: str, value: Any, what: str, axes: int) -> Any:
    np = numpy()
    if hasattr(value, "detach"):  # a tensor, on a GPU too, or with a gradient, or in bfloat16
        value = value.detach().cpu().tolist()
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {what}, got {shown(value)}") from None
    if array.ndim != axes:
        raise ValueError(f"{name} must be {what}, got shape {array.shape}")
    return array + 0.0  # -0.0 becomes 0.0
