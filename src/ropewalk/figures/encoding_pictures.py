"""Encodings side by side: vectors of positions, their similarity, biases by distance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from ropewalk.figures.drawing import Scheme, style
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    MOST_SHADES,
    Matrix,
    Numbers,
    Table,
    increasing,
    like,
    named,
    numpy,
    short,
    span,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_NAMED = 8  # heads that a legend names


def position_vectors(vectors: Mapping[str, Matrix]) -> Picture:
    """Return vectors of positions as shades, a panel for each encoding: positions down.

    Each panel has its own scale, because encodings differ much in size.

    vectors: `(S, width)` by the name of the encoding, a row for each position 0, 1, …

    Example:
        >>> import torch
        >>> from ropewalk import figures
        >>> from ropewalk.encodings import StackShape, build
        >>> shape = StackShape(layers=1, heads=4, kv_heads=4, head_dim=8, width=32, causal=True)
        >>> none, positions = torch.zeros(64, 32), torch.arange(64)
        >>> names = ("integer", "binary", "sinusoidal")
        >>> vectors = {name: build(name, shape).embed(none, positions) for name in names}
        >>> picture = figures.position_vectors(vectors)
        >>> picture.data["vectors"]["binary"][6][:4]
        [0.0, 1.0, 1.0, 0.0]
    """
    found = named("vectors", vectors, table)
    ends = {
        name: [end(number for row in rows for number in row) for end in (min, max)]
        for name, rows in found.items()
    }

    def draw(scheme: Scheme) -> Figure:
        figure, panels = _panels(scheme, len(found), 2.1, 3.9)
        for axes, (name, rows) in zip(panels, found.items(), strict=True):
            low, high = ends[name]
            most = max(-low, high) or 1.0
            image = scheme.heat_map(axes, rows, most, signed=low < 0)
            scheme.title(axes, name)
            axes.set_xlabel("column")
            axes.set_ylabel("position")
            bar = scheme.scale(figure, axes, image, "value", below=True)
            bar.set_ticks([-most, 0, most] if low < 0 else [0, most / 2, most])
            bar.ax.set_xticklabels([short(tick) for tick in bar.get_ticks()])
        return figure

    told = [
        f"{name}, {len(rows)} positions by {len(rows[0])} columns, {span(ends[name])}"
        for name, rows in found.items()
    ]
    alt = "Vectors of positions as shades, each panel with its own scale. "
    alt += f"The panels: {'; '.join(told)}."
    return Picture(draw, alt, {"vectors": found})


def position_similarity(vectors: Mapping[str, Matrix]) -> Picture:
    """Return the cosine similarity of all pairs of positions as shades, a panel for each encoding.

    For a rope, use cos and sin of all pairs as one vector: its similarity is the mean cosine of
    the angles between two positions. A vector of zeros has no direction: its row and column are
    gray.

    vectors: `(S, width)` by the name of the encoding, a row for each position 0, 1, …

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, figures
        >>> tables = RotaryEmbedding(RotarySpec(head_dim=64)).tables(torch.arange(64))
        >>> picture = figures.position_similarity({"rotary": torch.cat(tables, dim=-1)})
        >>> [round(number, 2) for number in picture.data["similarity"]["rotary"][10][10:13]]
        [1.0, 0.97, 0.88]
    """
    np = numpy()
    similarity: dict[str, Table] = {}
    for name, numbers in named("vectors", vectors, table).items():
        rows = np.asarray(numbers)
        if len(rows) ** 2 > MOST_SHADES:
            raise ValueError(
                f"vectors[{name!r}] must have at most {math.isqrt(MOST_SHADES):,} positions, got "
                f"{len(rows):,}; choose some of them"
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        units = rows / np.where(lengths > 0, lengths, np.nan)
        similarity[name] = np.clip(units @ units.T, -1, 1).tolist()

    def draw(scheme: Scheme) -> Figure:
        figure, panels = _panels(scheme, len(similarity), 2.2, 2.4, more=1.0)
        for axes, (name, rows) in zip(panels, similarity.items(), strict=True):
            image = scheme.heat_map(axes, rows, 1.0)
            scheme.title(axes, name)
            axes.set_xlabel("position")
            axes.set_ylabel("position")
        scheme.scale(figure, panels, image, "cosine similarity")
        return figure

    told = []
    for name, rows in similarity.items():
        near, far = _mean_diagonal(rows, 1), rows[0][-1]
        ends = "undefined" if math.isnan(far) else short(round(far, 3))
        told.append(f"{name}, {near} for neighbors, {ends} for the first and the last")
    alt = f"Cosine similarity of the vectors of positions. The panels: {'; '.join(told)}."
    return Picture(draw, alt, {"similarity": similarity})


def bias_by_distance(biases: Mapping[str, Matrix], distances: Numbers = None) -> Picture:
    """Return what encodings add to a score by distance: a panel for each, a line for each head.

    biases: `(heads, S)` by the name of the encoding, for each distance of a query from an earlier
        key.
    distances: in positions, increasing; 0, 1, … by default.

    Example:
        >>> import torch
        >>> from ropewalk import figures
        >>> from ropewalk.encodings import Placement, StackShape, build
        >>> shape = StackShape(layers=1, heads=4, kv_heads=4, head_dim=8, width=32, causal=True)
        >>> at = Placement(queries=torch.tensor([63]), keys=torch.arange(63, -1, -1))
        >>> bias = build("alibi", shape).for_layer(0).bias(at)[:, 0]  # (heads, distances)
        >>> picture = figures.bias_by_distance({"ALiBi": bias})
        >>> picture.data["biases"]["ALiBi"][0][:4]
        [0.0, -0.25, -0.5, -0.75]
    """
    found = named("biases", biases, table)
    longest = max(len(heads[0]) for heads in found.values())
    away = increasing("distances", range(longest) if distances is None else distances)
    for name, heads in found.items():
        like(f"biases[{name!r}]", heads[0], "distances", away)

    def draw(scheme: Scheme) -> Figure:
        columns = min(2, len(found))
        width = 3.6 * columns
        figure, panels = scheme.panels_in_rows(len(found), columns, width, 2.2, 0.4, sharex=True)
        for axes, (name, heads) in zip(panels, found.items(), strict=True):
            few = len(heads) <= _MOST_NAMED
            for head, numbers in enumerate(heads):
                look = style(head if few else 0)
                label = f"head {head}"
                axes.plot(away, numbers, look.line, color=look.color, linewidth=1.4, label=label)
            scheme.title(axes, name if few else f"{name}, {len(heads)} heads")
            scheme.calm(axes)
        for axes in panels[::columns]:
            axes.set_ylabel("added to the score")
        for axes in panels[-columns:]:
            axes.set_xlabel("distance in positions")
            axes.tick_params(labelbottom=True)
        most = max(found.values(), key=len)
        if 1 < len(most) <= _MOST_NAMED:
            names = panels[list(found.values()).index(most)].get_legend_handles_labels()
            looks = scheme.legend_look()
            figure.legend(*names, loc="outside upper left", ncols=len(most), **looks)
        return figure

    told = [
        f"{name}, {len(heads)} head{'s' if len(heads) > 1 else ''}: "
        f"{span([head[0] for head in heads])} at distance {short(away[0])}, "
        f"{span([head[-1] for head in heads])} at {short(away[-1])}"
        for name, heads in found.items()
    ]
    alt = f"What encodings add to a score by distance in positions. The panels: {'; '.join(told)}."
    return Picture(draw, alt, {"distances": away, "biases": found})


def _panels(
    scheme: Scheme, count: int, width: float, height: float, more: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, up to 4 next to each other, or rows of 3."""
    columns = count if count <= 4 else 3
    return scheme.panels_in_rows(count, columns, max(3.0, width * columns + more), height)


def _mean_diagonal(rows: Table, away: int) -> str:
    """Return the mean similarity of positions so far apart, in words."""
    diagonal = [rows[place][place + away] for place in range(len(rows) - away)]
    known = [number for number in diagonal if not math.isnan(number)]
    return short(round(fmean(known), 3)) if known else "undefined"
