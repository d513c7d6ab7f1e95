"""A usage for readers: sentences that claim only what the numbers show, tables, and the picture."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

from ropewalk.figures.picture import Picture
from ropewalk.figures.wavelength_pictures import frequency_usage
from ropewalk.tools.usage.head_usage import Cost, Kind, Layer, Norms, Usage

BANDS = ("fast", "medium", "slow")
KINDS: tuple[Kind, ...] = ("position", "content")
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
    band = [bisect_left(bands(length), wavelength) for wavelength in layer.wavelengths]
    even = tuple(band.count(place) / len(band) for place in range(len(BANDS)))

    def by_band(norms: Norms) -> tuple[float, ...]:
        sums = [0.0] * len(BANDS)
        for head in norms:
            squares = [norm**2 for norm in head]
            whole = sum(squares) or 1.0
            for place, square in zip(band, squares, strict=True):
                sums[place] += square / whole / len(norms)
        return tuple(sums)

    return Shares(even, by_band(layer.q_norms), by_band(layer.k_norms) if layer.k_norms else None)


def sentences(found: Usage) -> Iterator[str]:
    """Yield what the numbers show, in sentences."""
    shares = [shares_of(layer, found.length) for layer in found.layers]
    slow = [of_layer.q[2] for of_layer in shares]
    even = [of_layer.even[2] for of_layer in shares]
    where = " in the only layer with a rope"
    if len(shares) > 1:
        where = f", mean of {len(shares)} layers ({min(slow):.0%} to {max(slow):.0%})"
    yield (
        f"The slow pairs, with wavelengths above {found.length:,} tokens, have "
        f"{sum(slow) / len(slow):.0%} of the squared norm of q{where}; they are "
        f"{sum(even) / len(even):.0%} of the pairs."
    )
    heads = [head for layer in found.layers for head in layer.heads]
    if any(head.distance is not None for head in heads):
        position, content = (len(found.named(kind)) for kind in KINDS)
        rest = len(heads) - position - content
        are, rest_are = ("is" if count == 1 else "are" for count in (position, rest))
        others = f"; the other {rest} {rest_are} neither clearly" if rest else ""
        yield (
            f"Of {len(heads)} head{'s' * (len(heads) != 1)}, {position} {are} position-like and "
            f"{content} content-like by the rule below{others}."
        )
    yield from _cost_sentences(found.costs)


def _cost_sentences(costs: tuple[Cost, ...]) -> Iterator[str]:
    stopped = [cost for cost in costs if cost.fraction < 1]
    if not stopped:
        return
    worse = [cost for cost in stopped if cost.low > 0 and cost.difference > ROUNDING]
    better = [cost for cost in stopped if cost.high < 0 and cost.difference < -ROUNDING]
    neither = [cost for cost in stopped if cost not in worse and cost not in better]
    for word, changed in (("raises", worse), ("lowers", better)):
        if changed:
            changes = ", ".join(f"{c.difference:+.2g} at p = {c.fraction:g}" for c in changed)
            yield f"Stopping the slowest pairs, without training, {word} the loss: {changes}."
    if neither:
        fractions = ", ".join(f"{cost.fraction:g}" for cost in neither)
        farthest = max(abs(end) for cost in neither for end in (cost.low, cost.high))
        # Two digits, and not below the number itself.
        digits = Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(farthest))
        yield (
            f"At p = {fractions}, no change of the loss is shown; intervals end within "
            f"{float(digits):.2g} nats of 0."
        )
    yield (
        "This is what stopping costs this model on this text; a model that is trained with p-RoPE "
        "can adapt to it (arXiv 2410.06205 trains)."
    )


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
    rows: Rows = [("not measured", f"{missing}.") for missing in found.unmeasured]
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
    yield "what this shows", [("-", sentence) for sentence in sentences(found)]
    yield "how it is measured", NOTES


def _layer_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    known = any(head.distance is not None for layer in found.layers for head in layer.heads)
    kinds = KINDS if known else ()
    named = (*(f"{kind}-like" for kind in kinds), "heads")
    yield ("layer", *(f"q {band}" for band in BANDS), *(f"k {band}" for band in BANDS), *named)
    shares = [shares_of(layer, found.length) for layer in found.layers]
    evens = [_percents(of_layer.even) for of_layer in shares]
    same = all(of_layer.even == shares[0].even for of_layer in shares)
    for layer, of_layer, even in zip(found.layers, shares, evens, strict=True):
        name = str(layer.layer) if same else f"{layer.layer} (even {', '.join(even)})"
        k = _percents(of_layer.k) if of_layer.k else ["-"] * len(BANDS)
        counts = [str(sum(head.kind == kind for head in layer.heads)) for kind in kinds]
        yield (name, *_percents(of_layer.q), *k, *counts, str(len(layer.heads)))
    if same:
        yield ("even", *evens[0], *evens[0], *("" for _ in named))


def _percents(shares: tuple[float, ...]) -> list[str]:
    return [f"{share:.0%}" for share in shares]


def _head_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    def clearness(at: tuple[int, int]) -> float:
        head = heads[at]
        return max(head.position_share or 0.0, head.at_distance or 0.0)

    heads = {(x.layer, place): head for x in found.layers for place, head in enumerate(x.heads)}
    for kind in KINDS:
        clearest = sorted(found.named(kind), key=clearness, reverse=kind == "position")
        for layer, place in clearest[:MOST_HEADS]:
            head, share = heads[layer, place], ""
            if head.position_share is not None:
                share = f"distance explains {head.position_share:.0%}; "
            yield (
                f"{kind}-like",
                f"layer {layer}, head {place}",
                f"{share}{head.at_distance:.0%} of attention at distance {head.distance}, "
                f"{head.at_first:.0%} on the first token",
            )
        if len(clearest) > MOST_HEADS:
            yield f"{kind}-like", f"{len(clearest) - MOST_HEADS} more", "--json has all"


def _cost_rows(found: Usage) -> Iterator[tuple[str, ...]]:
    yield "p", "pairs that rotate", "longest wavelength", "loss", "difference", "interval"
    for cost in found.costs:
        counts = [*zip(cost.rotating, found.layers, strict=True)]
        pairs = dict.fromkeys(f"{count} of {len(layer.wavelengths)}" for count, layer in counts)
        rotating = [layer.wavelengths[count - 1] for count, layer in counts if count]
        longest = f"{max(rotating):,.0f}" if rotating else "-"
        difference, low, high = map(_signed, (cost.difference, cost.low, cost.high))
        both = (difference, f"{low} to {high}") if cost.fraction < 1 else ("", "")
        yield f"{cost.fraction:g}", ", ".join(pairs), longest, f"{cost.loss:.4f}", *both


def _signed(number: float) -> str:
    text = f"{number:+.5f}"
    return text if float(text) else "0.00000"


def usage_picture(found: Usage) -> Picture:
    """Return the shares of the squared norm by head and pair, for queries and for keys.

    Layers with other wavelengths, or with other numbers of heads, have panels of their own.
    """
    groups: dict[tuple[object, ...], list[Layer]] = {}
    for layer in found.layers:
        key = tuple(layer.wavelengths), len(layer.q_norms), len(layer.k_norms)
        groups.setdefault(key, []).append(layer)
    norms: dict[str, list[list[float]]] = {}
    waves: dict[str, tuple[float, ...]] = {}
    heads: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    for place, layers in enumerate(groups.values(), 1):
        of = f", rope {place}" if len(groups) > 1 else ""
        for name, tables in (
            (f"queries{of}", [layer.q_norms for layer in layers]),
            (f"keys{of}", [layer.k_norms for layer in layers]),
        ):
            if tables[0]:
                # A head that is 0 everywhere uses all pairs equally.
                rows = [list(head) for table in tables for head in table]
                norms[name] = [head if any(head) else [1.0] * len(head) for head in rows]
                waves[name] = layers[0].wavelengths
                heads[name] = len(tables[0])
                numbers[name] = [layer.layer for layer in layers]
    contexts = {f"window {found.length:,}": found.length}
    return frequency_usage(norms, waves, contexts, heads_per_layer=heads, layers=numbers)
