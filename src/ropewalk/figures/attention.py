"""Attention weights of trained models, every head of every layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ropewalk.checks import shown
from ropewalk.figures.drawing import LETTER, blank, heat_map, scale, title
from ropewalk.figures.numbers import Matrix, Row, Table, named, numpy, short, table
from ropewalk.figures.palette import Scheme
from ropewalk.figures.picture import Picture

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
    found = {name: _stack(f"maps[{name!r}]", held) for name, held in named("maps", maps).items()}
    blocks = {name: _block(stack) for name, stack in found.items()}

    def draw(scheme: Scheme) -> Figure:
        layers, heads = _most(found)
        side = min(0.55, (_MOST_WIDTH - 0.5) / heads)
        titles = {name: _broken(name, heads * side) for name in found}
        longest = max(len(line) for text in titles.values() for line in text.splitlines())
        width = max(heads * side, longest * LETTER) + 0.35
        columns = min(len(found), max(1, int(_MOST_WIDTH / width)))
        rows = -(-len(found) // columns)
        lines = max(text.count("\n") for text in titles.values())
        tall = layers * side + 0.55 + 0.15 * lines
        figure = blank(scheme, width * columns + 0.7, rows * tall)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(found) :]:
            axes.axis("off")
        for place, (axes, (name, block)) in enumerate(
            zip(panels.flat, blocks.items(), strict=False)
        ):
            image = heat_map(axes, scheme, block, 1.0, signed=False, root=True)
            image.set_cmap(image.cmap.with_extremes(bad=scheme.faint))  # the lines between maps
            title(axes, scheme, titles[name])
            _name_maps(axes, found[name], first=place % columns == 0)
        bar = scale(figure, panels, scheme, image, "weight")
        bar.set_ticks([0, 0.01, 0.1, 0.25, 0.5, 1], labels=["0", "0.01", "0.1", "0.25", "0.5", "1"])
        return figure

    layers, heads = _most(found)
    alt = f"Attention weights of {layers} layers by {heads} heads for each encoding. "
    told = [f"{name}, {short(round(_sharpness(stack), 3))}" for name, stack in found.items()]
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
    rows = [np.hstack(_lined(np, layer, axis=1)) for layer in stack]
    block: Table = np.vstack(_lined(np, rows, axis=0)).tolist()
    return block


def _lined(np: Any, parts: Sequence[Any], axis: int) -> list[Any]:
    arrays = [np.asarray(part) for part in parts]
    shape = list(arrays[0].shape)
    shape[axis] = 1
    gap = np.full(shape, math.nan)
    return [each for array in arrays for each in (gap, array)][1:]


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


def _most(found: Mapping[str, Stack]) -> tuple[int, int]:
    """Return the largest number of layers and of heads."""
    return max(map(len, found.values())), max(len(stack[0]) for stack in found.values())


def _broken(name: str, width: float) -> str:
    """Return a name that is too long for its block with a line for each of its arguments."""
    return name if len(name) * LETTER <= width else name.replace(",", ",\n")


def _sharpness(stack: Stack) -> float:
    """Return the mean over heads and queries of a query's largest weight."""
    largest: Row = [max(weights) for layer in stack for head in layer for weights in head]
    return sum(largest) / len(largest)
