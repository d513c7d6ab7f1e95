"""The picture of one attention head: its weights, the parts of one score, scores by distance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ropewalk.checks import check_int
from ropewalk.figures.drawing import ROOM, Scheme, line, plain
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import Matrix, Numbers, increasing, named_rows, row, short, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def head_by_pair(
    weights: Matrix,
    wavelengths: Sequence[float],
    parts: Numbers,
    distances: Numbers,
    scores: Mapping[str, Numbers],
    *,
    pair_of_tokens: tuple[int, int],
) -> Picture:
    """Return a head's weights, which rotary pairs make one score, and its mean score by distance.

    weights: `(S, T)`. Shades are proportional to the square root, from 0 to 1.
    wavelengths: `(P)`, tokens per full turn, the slowest pair first; inf if it does not rotate.
    parts: `(P + 1)`, the score of one query and key by pair; the last part does not rotate.
    distances: query minus key, increasing.
    scores: mean scores by name, one for each distance.
    pair_of_tokens: the query and the key of `parts`, counted from 0.

    Example:
        >>> from ropewalk import figures
        >>> weights = [[1.0, 0.0], [0.25, 0.75]]
        >>> picture = figures.head_by_pair(
        ...     weights, [600.0, 6.3], [0.1, 0.9, 0.0], [0, 1], {"all pairs": [0.2, 1.0]},
        ...     pair_of_tokens=(1, 0))
        >>> picture.alt.partition(". ")[2]
        'Query 1 and key 0 have the score 1, most of it, 0.9, by the pair of 6.3 tokens per turn.'
    """
    head, share, away = (
        table("weights", weights),
        row("parts", parts),
        increasing("distances", distances),
    )
    lines = named_rows("scores", scores, "distances", away)
    query, key = pair_of_tokens
    for name, place, most in (("query", query, len(head)), ("key", key, len(head[0]))):
        check_int(name, place, 0)
        if place >= most:
            raise ValueError(f"{name} must be below {most}, got {place}")
    if len(share) != len(wavelengths) + 1:
        raise ValueError(
            f"parts must be one for each of the {len(wavelengths)} wavelengths, and one that does "
            f"not rotate, got {len(share)}"
        )
    names = [_named(wave) for wave in wavelengths]

    def draw(scheme: Scheme) -> Figure:
        figure, (left, middle, right) = scheme.side_by_side(3, 11.0, 3.6)
        scheme.heat_map(left, head, 1.0, signed=False, root=True)
        left.plot([key], [query], "s", markersize=7, fillstyle="none", color=scheme.ink)
        scheme.title(left, "weights, 0 to 1")
        left.set_xlabel("key")
        left.set_ylabel("query")
        places: list[float] = list(range(len(share)))
        colors = [scheme.above if part >= 0 else scheme.below for part in share]
        middle.bar(places, share, color=colors)
        middle.axhline(0, color=scheme.ink, linewidth=0.8)
        step = max(1, -(-len(names) // 6))
        shown = [*range(0, len(names), step)]
        middle.set_xticks([*shown, len(names)], [*(names[i] for i in shown), "rest"])
        middle.tick_params(axis="x", rotation=60)
        title = f"query {query}, key {key}: {short(sum(share))}"
        scheme.dress(middle, "tokens per turn of the pair", "part of the score", heading=title)
        for place, (name, ys) in enumerate(lines.items()):
            line(right, place, away, ys, name)
        scheme.dress(right, "distance in tokens", "mean score", names=ROOM // 3)
        return figure

    largest = max(range(len(share)), key=lambda i: abs(share[i]))
    by = (
        f"the pair of {names[largest]} tokens per turn"
        if largest < len(names)
        else "what does not rotate"
    )
    alt = (
        f"A head's weights, {len(head)} queries by {len(head[0])} keys, the parts of one score by "
        f"rotary pair, and its mean score by distance. Query {query} and key {key} have the score "
        f"{short(sum(share))}, most of it, {short(share[largest])}, by {by}."
    )
    data: dict[str, Any] = {
        "weights": head, "wavelengths": [*wavelengths], "parts": share, "distances": away,
        "scores": lines,
    }  # fmt: skip
    return Picture(draw, alt, data)


def _named(wavelength: float) -> str:
    return plain(short(wavelength)) if math.isfinite(wavelength) else "none"
