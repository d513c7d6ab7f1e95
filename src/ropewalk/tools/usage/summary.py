"""Norms by bands of wavelengths, and sentences that claim only what the numbers show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

from ropewalk.tools.usage.facts import Cost, Kind, Layer, Norms, Usage

BANDS = ("fast", "medium", "slow")
#: Nats. A float32 loss has steps of about 2e-7 to 5e-7, so smaller changes may be rounding.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Shares:
    """Shares of the squared norm by band, means over heads; `even` is the share of the pairs."""

    even: tuple[float, ...]
    q: tuple[float, ...]
    k: tuple[float, ...] | None


def bands(length: int) -> tuple[float, float]:
    """Return the longest wavelengths of fast and of medium pairs: a quarter of a row, and a row."""
    return length / 4, float(length)


def shares_of(layer: Layer, length: int) -> Shares:
    """Return what fast, medium and slow pairs of a layer have."""
    fast, medium = bands(length)
    band = [0 if each <= fast else 1 if each <= medium else 2 for each in layer.wavelengths]
    even = tuple(band.count(place) / len(band) for place in range(len(BANDS)))
    k = _by_band(layer.k_norms, band) if layer.k_norms else None
    return Shares(even, _by_band(layer.q_norms, band), k)


def _by_band(norms: Norms, band: list[int]) -> tuple[float, ...]:
    sums = [0.0] * len(BANDS)
    for head in norms:
        squares = [norm**2 for norm in head]
        whole = sum(squares) or 1.0
        for place, square in zip(band, squares, strict=True):
            sums[place] += square / whole / len(norms)
    return tuple(sums)


def sentences(found: Usage) -> Iterator[str]:
    """Yield what the numbers show, in sentences."""
    shares = [shares_of(layer, found.length) for layer in found.layers]
    slow = [each.q[2] for each in shares]
    even = [each.even[2] for each in shares]
    where = " in the only layer with a rope"
    if len(shares) > 1:
        where = f", mean of {len(shares)} layers ({min(slow):.0%} to {max(slow):.0%})"
    yield (
        f"The slow pairs, with wavelengths above {found.length:,} tokens, have "
        f"{_mean(slow):.0%} of the squared norm of q{where}; they are {_mean(even):.0%} of the "
        f"pairs."
    )
    heads = [head for layer in found.layers for head in layer.heads]
    if any(head.distance is not None for head in heads):
        yield _heads_sentence([head.kind for head in heads])
    yield from _cost_sentences(found.costs)


def _heads_sentence(kinds: list[Kind | None]) -> str:
    position, content = kinds.count("position"), kinds.count("content")
    rest = len(kinds) - position - content
    said = (
        f"Of {len(kinds)} {'head' if len(kinds) == 1 else 'heads'}, {position} {_are(position)} "
        f"position-like and {content} content-like by the rule below"
    )
    return f"{said}; the other {rest} {_are(rest)} neither clearly." if rest else f"{said}."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _cost_sentences(costs: tuple[Cost, ...]) -> Iterator[str]:
    whole = [cost for cost in costs if cost.fraction < 1]
    if not whole:
        return
    worse = [cost for cost in whole if cost.low > 0 and cost.difference > ROUNDING]
    better = [cost for cost in whole if cost.high < 0 and cost.difference < -ROUNDING]
    neither = [cost for cost in whole if cost not in worse and cost not in better]
    for word, which in (("raises", worse), ("lowers", better)):
        if which:
            said = ", ".join(f"{each.difference:+.2g} at p = {each.fraction:g}" for each in which)
            yield f"Stopping the slowest pairs, without training, {word} the loss: {said}."
    if neither:
        said = ", ".join(f"{each.fraction:g}" for each in neither)
        farthest = max(max(abs(each.low), abs(each.high)) for each in neither)
        yield (
            f"At p = {said}, no change of the loss is shown; intervals end within "
            f"{_rounded_up(farthest)} nats of 0."
        )
    yield (
        "This is what stopping costs this model on this text; a model that is trained with p-RoPE "
        "can adapt to it (arXiv 2410.06205 trains)."
    )


def _rounded_up(number: float) -> str:
    """Return a number with two digits that is not below the given one."""
    digits = Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(number))
    return f"{float(digits):.2g}"


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)
