"""Plain data of figures: curves and outcomes of encodings, and checked rows and tables of numbers.

Numbers are read from anything that numpy reads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from ropewalk.checks import needing, shown


@dataclass(frozen=True)
class Curve:
    """Loss of one training over `x`, steps or seconds; a diverged training ends early.

    Example:
        >>> from ropewalk import figures
        >>> curve = figures.Curve(seed=1, x=(100, 200), loss=(3.1, 2.7))
        >>> print(figures.loss_curves({"t5": [curve]}).alt)
        Training and validation loss by steps. Last training loss, mean of seeds: t5, 2.7 at 200.
    """

    seed: int
    x: Sequence[float]
    loss: Sequence[float]
    diverged: bool = False


@dataclass(frozen=True)
class Outcome:
    """Score of one encoding by seed, their mean, and its difference from the first encoding.

    None marks a seed without a score, and then there is no mean. A difference comes with the low
    and the high end of its interval.

    Example:
        >>> from ropewalk import figures
        >>> outcome = figures.Outcome(values=(36.5, 37.9), mean=37.2)
        >>> figures.score_by_encoding({"rotary": outcome}).alt
        'BLEU by encoding. Mean and range of seeds: rotary, 37.2 (36.5 to 37.9).'
    """

    values: Sequence[float | None]
    mean: float | None
    difference: tuple[float, float, float] | None = None


def smoothed(curve: Curve, width: int) -> Curve:
    """Return the centered moving mean over `width` points (odd), fewer at the ends."""
    loss = curve.loss
    reach = (width - 1) // 2
    windows = [loss[max(0, i - reach) : i + reach + 1] for i in range(len(loss))]
    return Curve(curve.seed, curve.x, tuple(fmean(w) for w in windows), curve.diverged)


def mean_curve(curves: Sequence[Curve]) -> Curve | None:
    """Return the mean of the curves that did not diverge, over the x that all of them cover.

    Its x are those of the first curve; the others are interpolated. None if there is no such range.
    """
    kept = [curve for curve in curves if curve.x and not curve.diverged]
    if not kept:
        return None
    start, stop = max(c.x[0] for c in kept), min(c.x[-1] for c in kept)
    xs = sorted({start, stop, *(x for x in kept[0].x if start < x < stop)}) if start <= stop else []
    if not xs:
        return None
    means = (fmean(_interpolate(curve, x) for curve in kept) for x in xs)
    return Curve(kept[0].seed, tuple(xs), tuple(means))


def means_by_length(seeds: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean over seeds at each place, or None if a seed has no value."""
    means: list[float | None] = []
    for values in zip(*seeds, strict=True):
        known = [value for value in values if value is not None]
        means.append(fmean(known) if len(known) == len(values) else None)
    return means


def shift(place: int, of: int) -> float:
    """Return a small shift along x, so that encodings do not hide each other."""
    return (place - (of - 1) / 2) * min(0.06, 0.3 / of)


def spans_decades(scores: Mapping[str, Sequence[Sequence[float | None]]]) -> bool:
    """Return whether scores differ enough for a logarithmic axis to have useful marks."""
    known = [v for seeds in scores.values() for values in seeds for v in values if v is not None]
    return bool(known) and min(known) > 0 and max(known) >= 4 * min(known)


def ceiling(curves: Sequence[Curve]) -> float | None:
    """Return the highest loss after the first 4 % of each curve, where it falls steeply."""
    late = [
        loss
        for curve in curves
        if curve.x and not curve.diverged
        for x, loss in zip(curve.x, curve.loss, strict=True)
        if x >= 0.04 * curve.x[-1]
    ]
    return max(late) if late else None


def _interpolate(curve: Curve, x: float) -> float:
    right = bisect_left(curve.x, x)
    if right < len(curve.x) and curve.x[right] == x:
        return curve.loss[right]
    x0, x1 = curve.x[right - 1], curve.x[right]
    y0, y1 = curve.loss[right - 1], curve.loss[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


MOST_SHADES = 2**20  # more than a screen has pixels for

Row = list[float]
Table = list[Row]
Read = TypeVar("Read")
Values = TypeVar("Values", bound=Sequence[Any])

Numbers: TypeAlias = Any
"""A row of numbers: a list, a range, an array or a tensor."""

Matrix: TypeAlias = Any
"""Rows of numbers, all of the same length: lists, an array or a tensor."""


def row(name: str, value: Any, *, least: int = 1, gaps: bool = False) -> Row:
    """Return a row of at least `least` numbers; with `gaps`, nan marks numbers that are missing.

    Raises ValueError that names the argument if the value is anything else.
    """
    array = as_array(name, value, "a row of numbers", 1)
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
    array = as_array(name, value, "rows of numbers, all of the same length", 2)
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


def at_most(name: str, numbers: Row, most: int, each: str) -> Row:
    """Return the numbers; raise ValueError if there are more than can be drawn."""
    if len(numbers) > most:
        raise ValueError(
            f"{name} must have at most {most} numbers{each}, got {len(numbers)}; choose some of "
            f"them, such as {name}[::4]"
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


def named(name: str, value: Any, read: Callable[[str, Any], Read]) -> dict[str, Read]:
    """Return what is read from each entry of a mapping; its keys are the words of the legend.

    It must have at least one entry. read: receives how messages name the entry, and its value.
    """
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{name} must be a dict from names to numbers, got {shown(value)}; "
            'write {"a name": numbers}'
        )
    if not value:
        raise ValueError(f"{name} must have at least one entry, got an empty dict")
    return {str(key): read(f"{name}[{str(key)!r}]", entry) for key, entry in value.items()}


def named_rows(name: str, value: Any, other_name: str, other: Sequence[Any]) -> dict[str, Row]:
    """Return rows of numbers by name, each with one number for each of another row."""
    return named(name, value, lambda key, held: like(key, row(key, held), other_name, other))


def short(number: float) -> str:
    """Return a number as alternative texts write it: at most three digits, or a whole number."""
    number += 0.0  # -0.0 would be written "-0"
    if number and not 1e-3 <= abs(number) < 1e10:
        return f"{number:.2g}"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def span(numbers: list[float]) -> str:
    """Return the least and the largest number in words, or one word if these are the same."""
    low, high = short(min(numbers)), short(max(numbers))
    return low if low == high else f"{low} to {high}"


def numpy() -> ModuleType:
    """Return numpy; raise ImportError that names the extra if it or matplotlib is missing."""
    with needing("a figure", ImportError):
        import matplotlib  # noqa: F401
        import numpy as module
    return module


def as_array(name: str, value: Any, what: str, axes: int) -> Any:
    """Return a new array of float64 with this number of axes; `what` says what it must be."""
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
