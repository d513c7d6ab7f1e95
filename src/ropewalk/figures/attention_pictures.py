"""Pictures of attention: weights of trained models, and scores of a rotated query and key.

Weights are of every head of every layer; scores are by distance, and moved together through a
sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ropewalk.checks import check_int, shown
from ropewalk.figures.drawing import COLORS, LETTER, ROOM, Scheme, line, plain, style
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    Matrix,
    Numbers,
    Row,
    Table,
    at_most,
    increasing,
    named,
    named_rows,
    numpy,
    row,
    short,
    span,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Stack = list[list[Table]]

_MOST_WIDTH = 9.0  # inches


def attention_maps(maps: Mapping[str, Sequence[Sequence[Matrix]]]) -> Picture:
    """Return the attention weights of every head as shades, a block of maps for each encoding.

    Layers go from top to bottom, heads from left to right; in each map, rows are queries and
    columns are keys. Shades are proportional to the square root of the weight, so that the many
    small ones are visible, and go from 0 to 1 in every map. Weights outside 0 to 1, as in linear
    attention, are drawn as 0 or 1.

    maps: by the name of the encoding, for each layer and each head `(S, T)` weights.

    Example:
        >>> from ropewalk import figures
        >>> head = [[1.0, 0.0], [0.25, 0.75]]  # 2 queries by 2 keys
        >>> picture = figures.attention_maps({"rotary": [[head, head]]})
        >>> picture.alt.partition(". ")[2]
        'Largest weight of each query, mean over all queries and heads: rotary, 0.875.'
    """
    found = named("maps", maps, _stack)
    layers, heads = max(map(len, found.values())), max(len(stack[0]) for stack in found.values())

    def draw(scheme: Scheme) -> Figure:
        widest = min(_MOST_WIDTH, scheme.widest)
        side = min(0.55, (widest - 0.5) / heads)
        titles = {  # a name that is too long for its block has a line for each of its arguments
            name: name if len(name) * LETTER <= heads * side else name.replace(",", ",\n")
            for name in found
        }
        longest = max(len(line) for text in titles.values() for line in text.splitlines())
        width = max(heads * side, longest * LETTER) + 0.35
        columns = min(len(found), max(1, int(widest / width)))
        lines = max(text.count("\n") for text in titles.values())
        tall = layers * side + 0.55 + 0.15 * lines
        figure, panels = scheme.panels_in_rows(len(found), columns, width * columns + 0.7, tall)
        for place, (axes, (name, stack)) in enumerate(zip(panels, found.items(), strict=True)):
            image = scheme.heat_map(axes, _block(stack), 1.0, signed=False, root=True)
            image.set_cmap(image.cmap.with_extremes(bad=scheme.faint))  # the lines between maps
            scheme.title(axes, titles[name])
            _name_maps(axes, stack, first=place % columns == 0)
        bar = scheme.scale(figure, figure.axes, image, "weight")
        bar.set_ticks([0, 0.01, 0.1, 0.25, 0.5, 1], labels=["0", "0.01", "0.1", "0.25", "0.5", "1"])
        return figure

    alt = f"Attention weights of {layers} layers by {heads} heads for each encoding. "
    told = []
    for name, stack in found.items():
        largest = [max(weights) for layer in stack for head in layer for weights in head]
        told.append(f"{name}, {short(round(fmean(largest), 3))}")
    alt += f"Largest weight of each query, mean over all queries and heads: {'; '.join(told)}."
    return Picture(draw, alt, {"weights": found})


def _stack(name: str, value: Any) -> Stack:
    """Return the maps of a stack, all of the same size, as many in each layer."""
    stack = [
        [table(f"{name}[{place}][{head}]", weights) for head, weights in enumerate(layer)]
        for place, layer in enumerate(value)
    ]
    sizes = {(len(head), len(head[0])) for layer in stack for head in layer}
    if len(sizes) != 1 or len({len(layer) for layer in stack}) != 1:
        raise ValueError(
            f"{name} must have layers of as many heads each, all of the same size, got "
            f"{shown([len(layer) for layer in stack])} heads and sizes {shown(sorted(sizes))}"
        )
    return stack


def _block(stack: Stack) -> Table:
    """Return all maps of a stack as one table, with lines of nan between the maps."""
    np = numpy()
    maps = np.asarray(stack)  # (layers, heads, rows, columns)
    lined = np.pad(maps, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=math.nan)
    layers, heads, tall, wide = lined.shape
    whole = lined.transpose(0, 2, 1, 3).reshape(layers * tall, heads * wide)
    block: Table = whole[:-1, :-1].tolist()
    return block


def _name_maps(axes: Axes, stack: Stack, *, first: bool) -> None:
    """Number heads and layers from 1, as the report does; the first block names the axes."""
    tall, wide = len(stack[0][0]), len(stack[0][0][0])
    heads, layers = len(stack[0]), len(stack)
    middles = [head * (wide + 1) + (wide - 1) / 2 for head in range(heads)]
    axes.set_xticks(middles, [str(head + 1) for head in range(heads)])
    middles = [layer * (tall + 1) + (tall - 1) / 2 for layer in range(layers)]
    axes.set_yticks(middles, [str(layer + 1) for layer in range(layers)])
    axes.tick_params(length=0, pad=2, labelsize=7)
    if first:
        axes.set_xlabel("head")
        axes.set_ylabel("layer")


MOST_STARTS = 24


def score_by_distance(
    frequencies: Numbers,
    distances: Numbers,
    *,
    q: Matrix = None,
    k: Matrix = None,
    pair: int = 0,
    measured: Mapping[str, Numbers] | None = None,
) -> Picture:
    """Return the score of a query and a key by distance: of one pair, of all pairs, and its decay.

    frequencies: radians per position, one for each pair.
    distances: position of the query minus position of the key, increasing.
    q, k: `(R/2, 2)`, the two numbers of each pair before rotation, such as those of a trained
        model. Without them, q and k are equal in every pair, and scores are relative to distance 0.
    pair: the one that is drawn alone.
    measured: other scores at the same distances, by name.

    The decay, drawn without q and k, is the mean over j of |S_j|, the sum of the first j pairs as
    complex numbers, relative to distance 0: RoFormer's bound (arXiv 2104.09864, section 3.4.3).

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> frequencies = RotarySpec(head_dim=128).inverse_frequencies()
        >>> picture = figures.score_by_distance(frequencies, range(401), pair=16)
        >>> [round(picture.data["scores"]["all 64 pairs"][d], 2) for d in (0, 10, 100, 400)]
        [1.0, 0.67, 0.48, 0.28]
    """
    speeds, away = row("frequencies", frequencies), increasing("distances", distances, least=2)
    check_int("pair", pair, 0)
    if pair >= len(speeds):
        raise ValueError(f"pair must be below {len(speeds)}, the number of pairs, got {pair}")
    if (q is None) != (k is None):
        raise ValueError(f"q and k must be given together, got only {'k' if q is None else 'q'}")
    alone = f"pair {pair} alone, {short(speeds[pair])} rad per position"
    every = f"all {len(speeds)} pairs"
    scores: dict[str, Row] = {}
    if q is None:
        scores[alone] = [math.cos(d * speeds[pair]) for d in away]
        scores[every] = [fmean(math.cos(d * f) for f in speeds) for d in away]
        scores["decay: mean of |S_j|, RoFormer"] = [_decay(speeds, d) for d in away]
    else:
        pairs = zip(_pairs("q", q, speeds), _pairs("k", k, speeds), speeds, strict=True)
        # The real and the imaginary part of q times conjugate k, for each pair.
        parts = [((a * c + b * d, b * c - a * d), f) for (a, b), (c, d), f in pairs]
        by_pair = [[a * math.cos(d * f) - b * math.sin(d * f) for d in away] for (a, b), f in parts]
        scores[alone] = by_pair[pair]
        scores[every] = [sum(parts) for parts in zip(*by_pair, strict=True)]
    if measured is not None:
        rows = named_rows("measured", measured, "distances", away)
        for name in rows.keys() & scores.keys():
            raise ValueError(f"measured must not use the name of a line of the rope, got {name!r}")
        scores |= rows

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.0, 3.8)
        axes = figure.subplots()
        looks = [(COLORS[1], "-", 0.9), (COLORS[0], "-", 2.0), (COLORS[2], "--", 1.6)]
        others = (style(place) for place in range(len(looks), len(scores)))
        looks += [(other.color, other.line, 1.6) for other in others]
        for (color, dashes, wide), (name, ys) in zip(looks, scores.items(), strict=False):
            axes.plot(away, ys, dashes, color=color, linewidth=wide, label=plain(name))
        unit = "score, share of that at distance 0" if q is None else "score"
        scheme.dress(axes, "distance in positions", unit, names=ROOM)
        return figure

    told = [
        f"{name}, {short(ys[0])} at {short(away[0])}, {short(ys[-1])} at {short(away[-1])}, "
        f"overall {span(ys)}"
        for name, ys in scores.items()
    ]
    unit = ", relative to distance 0" if q is None else ""
    alt = (
        f"Score of a query and a key by distance in positions{unit}. The lines: {'; '.join(told)}."
    )
    return Picture(draw, alt, {"distances": away, "scores": scores})


def moved_together(
    starts: Numbers,
    gap: int,
    scores: Mapping[str, Numbers],
    words: Sequence[str] = ("key", "query"),
) -> Picture:
    """Return the scores of two words that move together through a sentence, a row for each place.

    With a rope, the score is the same in each row, because the distance is.

    starts: positions of the first word, increasing, at most 24.
    gap: by how many positions the second word follows.
    scores: by name of the encoding, one for each start.
    words: the two words.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, figures
        >>> rope = RotaryEmbedding(RotarySpec(head_dim=64))
        >>> torch.manual_seed(0)
        <torch._C.Generator object at ...>
        >>> k, q = torch.randn(2, 1, 1, 1, 64)
        >>> starts, at = range(0, 30, 6), lambda x, m: rope.rotate(x, torch.tensor([m])).flatten()
        >>> scores = [float(at(k, m) @ at(q, m + 3)) for m in starts]
        >>> picture = figures.moved_together(starts, 3, {"rotary": scores})
        >>> max(scores) - min(scores) < 1e-5
        True
    """
    places = at_most("starts", increasing("starts", starts), MOST_STARTS, ", one for each row")
    check_int("gap", gap, 1)
    if len(words) != 2 or isinstance(words, str):
        raise ValueError(f"words must be two words, got {shown(words)}")
    found = named_rows("scores", scores, "starts", places)

    def draw(scheme: Scheme) -> Figure:
        height = 1.5 + 0.2 * len(places)
        figure, (left, right) = scheme.side_by_side(
            2, 7.4, height, width_ratios=(3, 2), sharey=True
        )
        _sentences(left, scheme, places, gap, words)
        rows: Row = [*range(len(places))]
        for place, (name, held) in enumerate(found.items()):
            line(right, place, held, rows, name, width=1.2)
        scheme.dress(right, "score of the two words", "", names=46)
        low, high = (end(s for held in found.values() for s in held) for end in (min, max))
        # Wide enough that errors of rounding do not look like a change.
        room = max(0.12 * (high - low), 0.1 * max(abs(low), abs(high)), 1e-6)
        right.set_xlim(low - room, high + room)
        for axes in (left, right):
            axes.tick_params(left=False, labelleft=False)
            axes.spines[["left"]].set_visible(False)
        left.grid(visible=False)
        return figure

    told = [f"{name}, {_change(held)}" for name, held in found.items()]
    alt = (
        f"Two words, {words[0]} and {words[1]}, {gap} positions apart, move together from position "
        f"{short(places[0])} to {short(places[-1])}. Scores: {'; '.join(told)}."
    )
    return Picture(draw, alt, {"starts": places, "gap": gap, "scores": found})


def _change(scores: Row) -> str:
    """Return how scores change, in words; errors of rounding are no change."""
    low, high = min(scores), max(scores)
    if high - low <= 1e-5 * max(abs(low), abs(high)):
        return f"{short(low)} at each place, up to rounding"
    return f"{span(scores)}, a change of {short(high - low)}"


def _sentences(axes: Axes, scheme: Scheme, places: Row, gap: int, words: Sequence[str]) -> None:
    rows = list(range(len(places)))
    last = places[-1] + gap
    if last - places[0] <= 48:  # each position is a dot; farther apart, they would run together
        others = [places[0] + step for step in range(int(last - places[0]) + 1)]
        for y in rows:
            axes.plot(others, [y] * len(others), ".", color=scheme.quiet, markersize=2)
    for place, y in zip(places, rows, strict=True):
        axes.plot([place, place + gap], [y, y], color=scheme.quiet, linewidth=1)
    axes.plot(places, rows, "s", color=COLORS[1], markersize=6)
    axes.plot([place + gap for place in places], rows, "o", color=COLORS[0], markersize=6)
    for word, x, side in ((words[0], places[0], "right"), (words[1], places[0] + gap, "left")):
        scheme.note(
            axes, word, xy=(x, 0), xytext=(-1 if side == "right" else 1, 7), ha=side,
            textcoords="offset points",
        )  # fmt: skip
    scheme.dress(axes, "position in the sentence", "")
    axes.set_ylim(len(places) - 0.4, -1.2)
    axes.margins(x=0.12)


def _pairs(name: str, value: Any, speeds: Row) -> list[Row]:
    numbers = table(name, value)
    if (len(numbers), len(numbers[0])) != (len(speeds), 2):
        raise ValueError(
            f"{name} must have the shape ({len(speeds)}, 2), two numbers for each frequency, "
            f"got ({len(numbers)}, {len(numbers[0])})"
        )
    return numbers


def _decay(speeds: Row, distance: float) -> float:
    """Return the mean length of the sums of the first j pairs, relative to distance 0."""
    hands = (complex(math.cos(distance * f), math.sin(distance * f)) for f in speeds)
    return sum(map(abs, accumulate(hands))) / (len(speeds) * (len(speeds) + 1) / 2)
