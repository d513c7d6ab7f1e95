"""How much of a head's norm each pair has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ropewalk.checks import shown
from ropewalk.figures.drawing import blank, heat_map, note, scale, title
from ropewalk.figures.numbers import (
    Matrix,
    Numbers,
    Row,
    Table,
    like,
    listed,
    named,
    positive,
    short,
    span,
    table,
)
from ropewalk.figures.palette import Scheme
from ropewalk.figures.picture import Picture
from ropewalk.figures.wavelengths import wavelengths_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 16  # of layers, on an axis
MANY = 64  # heads, from which on a picture is taller


def frequency_usage(
    norms: Mapping[str, Matrix],
    wavelengths: Numbers | Mapping[str, Numbers],
    contexts: Mapping[str, float] | None = None,
    *,
    heads_per_layer: int | Mapping[str, int] | None = None,
    layers: Mapping[str, Sequence[int]] | None = None,
) -> Picture:
    """Return how much of each head's squared norm each pair has, as shades.

    norms: `(heads, R/2)` by name, such as queries and keys: the norm of each pair in each head.
    wavelengths: those of the pairs, in positions per full turn, none shorter than the one before;
        inf if a pair does not rotate. A dict if they differ between the names.
    contexts: lengths in positions, by label. Pairs right of a context's line have longer
        wavelengths.
    heads_per_layer: the number of heads in a layer, to draw lines between layers; a dict if there
        are more query heads than key heads.
    layers: the numbers of the layers, by name, if they are not 0, 1, …

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> spec = RotarySpec(head_dim=8)
        >>> norms = {"queries": [[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 3.0]]}  # two heads
        >>> picture = figures.frequency_usage(norms, spec.wavelengths(), {"trained length": 2048})
        >>> picture.data["shares"]["queries"][0]  # of the squared norm
        [0.75, 0.08333333333333333, 0.08333333333333333, 0.08333333333333333]
    """
    each_name = named("norms", norms)
    of = wavelengths if isinstance(wavelengths, Mapping) else dict.fromkeys(each_name, wavelengths)
    heads_of = heads_per_layer
    if not isinstance(heads_of, Mapping):
        heads_of = {} if heads_of is None else dict.fromkeys(each_name, heads_of)
    waves: dict[str, Row] = {}
    shares: dict[str, Table] = {}
    for name, held in each_name.items():
        if name not in of:
            raise ValueError(f"wavelengths must name each of norms, got none for {shown(name)}")
        waves[name] = _not_decreasing(of[name])
        heads = table(f"norms[{name!r}]", held)
        like(f"norms[{name!r}]", heads[0], "wavelengths", waves[name])
        if not all(any(head) for head in heads):
            raise ValueError(f"norms[{name!r}] must have a number above 0 in each row")
        shares[name] = [[n * n / sum(m * m for m in head) for n in head] for head in heads]
    lengths = {} if not contexts else {str(label): n for label, n in contexts.items()}
    positive("contexts", list(lengths.values()), least=0)
    most = max(share for heads in shares.values() for head in heads for share in head)

    def draw(scheme: Scheme) -> Figure:
        tallest = max(len(heads) for heads in shares.values())
        height = 1.6 + min(3.4 if tallest < MANY else 7.0, 0.2 * tallest)
        figure = blank(scheme, min(9.0, 1.4 + 3.0 * len(shares)), height)
        panels = figure.subplots(1, len(shares), squeeze=False)[0]
        for axes, (name, heads) in zip(panels, shares.items(), strict=True):
            percent = [[100 * share for share in head] for head in heads]
            image = heat_map(axes, scheme, percent, 100 * most, signed=False)
            title(axes, scheme, name, pad=16 if lengths else 6)
            numbers = None if layers is None else layers.get(name)
            _ticks(axes, waves[name], narrow=len(shares) > 2)
            _layers(axes, scheme, len(heads), heads_of.get(name), numbers)
            _contexts(axes, scheme, waves[name], lengths)
        scale(figure, panels, scheme, image, "% of the squared norm")
        return figure

    told = [f"{_largest(heads)} for {name}" for name, heads in shares.items()]
    known = [wave for row in waves.values() for wave in row if not math.isnan(wave)]
    alt = (
        f"Shares of the squared norm by head and pair, up to {100 * most:.0f} %, wavelengths "
        f"{span(known) if known else 'none'} positions. Pair with the largest mean share: "
        f"{listed(told)}."
    )
    for label, length in lengths.items():
        beyond = [f"{100 * _beyond(h, waves[n], length):.0f} % of {n}" for n, h in shares.items()]
        alt += f" Pairs with wavelengths above {label} ({short(length)}) have {listed(beyond)}."
    same = len({tuple(map(str, row)) for row in waves.values()}) == 1
    drawn = next(iter(waves.values())) if same else waves
    return Picture(draw, alt, {"shares": shares, "wavelengths": drawn, "contexts": lengths})


def _not_decreasing(value: Numbers) -> Row:
    """Return wavelengths, with nan at the end for pairs that do not rotate."""
    waves = wavelengths_row("wavelengths", value)
    if any(b < a or (math.isnan(a) and not math.isnan(b)) for a, b in pairwise(waves)):
        raise ValueError(f"wavelengths must not decrease, got {shown(waves)}")
    return waves


def _ticks(axes: Axes, waves: Row, *, narrow: bool) -> None:
    ticks = range(0, len(waves), max(1, -(-len(waves) // (4 if narrow else 6))))
    words = ["none" if math.isnan(waves[tick]) else short(waves[tick]) for tick in ticks]
    axes.set_xticks(list(ticks), words, rotation=30)
    axes.set_xlabel("wavelength" if narrow else "wavelength of the pair, in positions")


def _layers(
    axes: Axes, scheme: Scheme, heads: int, per_layer: int | None, numbers: Sequence[int] | None
) -> None:
    """Name the layers, or the heads if their number in a layer is not known."""
    if not per_layer:
        axes.set_ylabel("head")
        axes.set_yticks(range(0, heads, max(1, -(-heads // 8))))
        return
    starts = range(0, heads, per_layer)
    every = -(-len(starts) // MOST_LABELS)
    places = list(range(len(starts)))[::every]
    words = [f"layer {place if numbers is None else numbers[place]}" for place in places]
    axes.set_yticks([starts[place] + (per_layer - 1) / 2 for place in places], words)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=scheme.ink, linewidth=0.8 if every == 1 else 0.3)


def _contexts(axes: Axes, scheme: Scheme, waves: Row, lengths: Mapping[str, float]) -> None:
    for label, length in lengths.items():
        below = sum(wave <= length for wave in waves)
        axes.axvline(below - 0.5, color=scheme.ink, linewidth=1, linestyle=":")
        note(
            axes, scheme, label, xy=(below - 0.5, 1), xytext=(0, 2), ha="center", va="bottom",
            xycoords=("data", "axes fraction"), textcoords="offset points",
        )  # fmt: skip


def _largest(heads: Table) -> int:
    """Return the pair with the largest mean share."""
    means = [sum(column) for column in zip(*heads, strict=True)]
    return means.index(max(means))


def _beyond(heads: Table, waves: Row, length: float) -> float:
    """Return the mean share of pairs with longer wavelengths."""
    sums = [sum(n for n, w in zip(head, waves, strict=True) if not w <= length) for head in heads]
    return sum(sums) / len(sums)
