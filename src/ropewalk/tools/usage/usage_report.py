"""A usage for readers: sentences that claim only what the numbers show, tables, and the picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path

from ropewalk.figures.picture import Picture
from ropewalk.figures.wavelength_pictures import frequency_usage
from ropewalk.tools.usage.head_usage import Cost, Head, Kind, Layer, Norms, Usage

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


Rows = list[tuple[str, ...]]

MOST_HEADS = 24  # that are listed, the clearest
NOTES: Rows = [
    (
        "norms",
        "Root mean square over tokens of each pair of q and k before rotation, squared. A head's "
        "sum is 100 %; means over heads. Even: the share of the pairs that are in a band.",
    ),
    (
        "heads",
        "Distance explains: the share of the variance of scores, within each query, that the "
        "distance of the key alone explains. Position-like: this is at least 50 %, or one distance "
        "gets at least 50 % of attention. Content-like: this is at most 10 %, and neither one "
        "distance nor the first token gets 50 %. What distance does not explain is content, or "
        "content and distance together.",
    ),
    (
        "p-RoPE",
        "p: the share of pairs that rotate, the fastest; the others have frequency 0, in all "
        "layers. Loss: nats per predicted token. Intervals: 95 %, bootstrap over blocks of at "
        "most 32 tokens.",
    ),
]


def summary_blocks(found: Usage, source: str) -> Iterator[tuple[str, Rows]]:
    """Yield what was read, norms by layer, named heads, the cost of p-RoPE and how to read it."""
    rows: Rows = [("not measured", f"{each}.") for each in found.unmeasured]
    yield f"{source}: {found.model}, {found.rows:,} rows of {found.length:,} tokens", rows
    fast, medium = bands(found.length)
    yield (
        f"squared norm in pairs by wavelength: fast up to {fast:,.0f} tokens, medium up to "
        f"{medium:,.0f}, slow above",
        list(_layer_rows(found)),
    )
    heads = list(_head_rows(found))
    if heads:
        yield "heads", heads
    if found.costs:
        yield "p-RoPE without training", list(_cost_rows(found))
    yield "what this shows", [("-", each) for each in sentences(found)]
    yield "how it is measured", NOTES


def _layer_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    known = any(head.distance is not None for layer in found.layers for head in layer.heads)
    named = ("position-like", "content-like", "heads") if known else ("heads",)
    yield ("layer", *(f"q {band}" for band in BANDS), *(f"k {band}" for band in BANDS), *named)
    evens = [shares_of(layer, found.length).even for layer in found.layers]
    one = len(set(evens)) == 1
    for layer, even in zip(found.layers, evens, strict=True):
        shares = shares_of(layer, found.length)
        k = [f"{share:.0%}" for share in shares.k] if shares.k else ["-"] * len(BANDS)
        counts: list[str] = []
        if known:
            kinds = ("position", "content")
            counts = [str(sum(head.kind == kind for head in layer.heads)) for kind in kinds]
        name = str(layer.layer)
        if not one:
            name += f" (even {', '.join(f'{share:.0%}' for share in even)})"
        q = [f"{share:.0%}" for share in shares.q]
        yield (name, *q, *k, *counts, str(len(layer.heads)))
    if one:
        even_cells = [f"{share:.0%}" for share in evens[0]]
        yield ("even", *even_cells, *even_cells, *("" for _ in named))


def _head_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    for kind in ("position", "content"):
        heads = [
            (layer.layer, place, head)
            for layer in found.layers
            for place, head in enumerate(layer.heads)
            if head.kind == kind
        ]
        heads.sort(key=lambda each: _clearness(each[2]), reverse=kind == "position")
        for layer, place, head in heads[:MOST_HEADS]:
            yield f"{kind}-like", f"layer {layer}, head {place}", _head(head)
        if len(heads) > MOST_HEADS:
            yield f"{kind}-like", f"{len(heads) - MOST_HEADS} more", "--json has all"


def _clearness(head: Head) -> float:
    return max(head.position_share or 0.0, head.at_distance or 0.0)


def _head(head: Head) -> str:
    share = "" if head.position_share is None else f"distance explains {head.position_share:.0%}; "
    return (
        f"{share}{head.at_distance:.0%} of attention at distance {head.distance}, "
        f"{head.at_first:.0%} on the first token"
    )


def _cost_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    yield "p", "pairs that rotate", "longest wavelength", "loss", "difference", "interval"
    for cost in found.costs:
        pairs = [
            f"{count} of {len(layer.wavelengths)}"
            for count, layer in zip(cost.rotating, found.layers, strict=True)
        ]
        rotating = [
            layer.wavelengths[count - 1]
            for count, layer in zip(cost.rotating, found.layers, strict=True)
            if count
        ]
        longest = f"{max(rotating):,.0f}" if rotating else "-"
        both = [""] * 2
        if cost.fraction < 1:
            both = [_signed(cost.difference), f"{_signed(cost.low)} to {_signed(cost.high)}"]
        several = ", ".join(dict.fromkeys(pairs))
        yield f"{cost.fraction:g}", several, longest, f"{cost.loss:.4f}", *both


def _signed(number: float) -> str:
    text = f"{number:+.5f}"
    return text if float(text) else "0.00000"


Table = list[list[float]]


def usage_picture(found: Usage) -> Picture:
    """Return the shares of the squared norm by head and pair, for queries and for keys.

    Layers with other wavelengths, or with other numbers of heads, have panels of their own.
    """
    groups: dict[tuple[object, ...], list[Layer]] = {}
    for layer in found.layers:
        key = tuple(layer.wavelengths), len(layer.q_norms), len(layer.k_norms)
        groups.setdefault(key, []).append(layer)
    norms: dict[str, Table] = {}
    waves: dict[str, tuple[float, ...]] = {}
    heads: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    for place, layers in enumerate(groups.values(), 1):
        of = f", rope {place}" if len(groups) > 1 else ""
        for name, held in (
            (f"queries{of}", [each.q_norms for each in layers]),
            (f"keys{of}", [each.k_norms for each in layers]),
        ):
            if held[0]:
                norms[name] = [head for each in held for head in _without_zeros(each)]
                waves[name] = layers[0].wavelengths
                heads[name] = len(held[0])
                numbers[name] = [layer.layer for layer in layers]
    contexts = {f"window {found.length:,}": found.length}
    return frequency_usage(norms, waves, contexts, heads_per_layer=heads, layers=numbers)


def save_usage(path: Path, found: Usage) -> None:
    """Save the picture as PNG or SVG."""
    usage_picture(found).save(path)


def _without_zeros(norms: Norms) -> Table:
    """Return the norms of heads; a head that is 0 everywhere uses all pairs equally."""
    return [list(head) if any(head) else [1.0] * len(head) for head in norms]
