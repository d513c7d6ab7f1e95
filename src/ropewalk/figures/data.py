"""Data of figures: plain numbers under the names of encodings."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    return Curve(curve.seed, curve.x, tuple(sum(w) / len(w) for w in windows), curve.diverged)


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
    means = (sum(_interpolate(curve, x) for curve in kept) / len(kept) for x in xs)
    return Curve(kept[0].seed, tuple(xs), tuple(means))


def means_by_length(seeds: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean over seeds at each place, or None if a seed has no value."""
    means: list[float | None] = []
    for values in zip(*seeds, strict=True):
        known = [value for value in values if value is not None]
        means.append(sum(known) / len(known) if len(known) == len(values) else None)
    return means


def shift(place: int, of: int) -> float:
    """Return a small shift along x, so that encodings do not hide each other."""
    return (place - (of - 1) / 2) * min(0.12, 0.6 / of)


def spans_decades(scores: Mapping[str, Sequence[Sequence[float | None]]]) -> bool:
    """Return whether scores differ enough for a logarithmic axis to have useful marks."""
    known = [v for seeds in scores.values() for values in seeds for v in values if v is not None]
    return bool(known) and min(known) > 0 and max(known) >= 4 * min(known)


def ceiling(curves: Sequence[Curve], share: float = 0.04) -> float | None:
    """Return the highest loss after the first `share` of each curve, where it falls steeply."""
    late = [
        loss
        for curve in curves
        if curve.x and not curve.diverged
        for x, loss in zip(curve.x, curve.loss, strict=True)
        if x >= share * curve.x[-1]
    ]
    return max(late) if late else None


def finite(curve: Curve) -> Curve:
    """Return the curve without points that are not finite, as in a diverging loss."""
    kept = [(x, y) for x, y in zip(curve.x, curve.loss, strict=True) if math.isfinite(y)]
    return Curve(curve.seed, tuple(x for x, _ in kept), tuple(y for _, y in kept), curve.diverged)


def _interpolate(curve: Curve, x: float) -> float:
    right = bisect_left(curve.x, x)
    if right < len(curve.x) and curve.x[right] == x:
        return curve.loss[right]
    x0, x1 = curve.x[right - 1], curve.x[right]
    y0, y1 = curve.loss[right - 1], curve.loss[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
