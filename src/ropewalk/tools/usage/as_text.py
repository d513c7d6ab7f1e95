"""A usage as text for a terminal: titles with rows of cells."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.tools.usage.facts import Head, Usage
from ropewalk.tools.usage.summary import BANDS, bands, sentences, shares_of

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
