"""The rotation itself: hands of pairs, the path of a pair over positions, tables of cos and sin."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ropewalk.checks import joined
from ropewalk.figures.drawing import COLORS, Scheme
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    Matrix,
    Numbers,
    Row,
    at_most,
    increasing,
    like,
    row,
    short,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_PLANES, MOST_HANDS, MOST_PATHS, MOST_TURNS = 64, 4096, 4, 160
_LONG = 14  # length of the axis of positions, in the units of the other two axes
_NEAR = 0.3  # radians: labels of hands that are closer would overlap


def pair_planes(frequencies: Numbers, positions: Numbers) -> Picture:
    """Return a dial for each pair, with a hand at the angle of each position.

    frequencies: radians per position, one for each pair, at most 64.
    positions: increasing. Hands of later positions are thicker.

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> frequencies = RotarySpec(head_dim=8, theta=100.0).inverse_frequencies()
        >>> picture = figures.pair_planes(frequencies, positions=range(7))
        >>> [round(angle, 3) for angle in picture.data["angles"][1]]  # of pair 1, in radians
        [0.0, 0.316, 0.632, 0.949, 1.265, 1.581, 1.897]
    """
    speeds = row("frequencies", frequencies)
    speeds = at_most("frequencies", speeds, MOST_PLANES, ", one for each dial")
    dials, places = _count(len(speeds), "dial"), increasing("positions", positions)
    at_most("positions", places, MOST_HANDS // len(speeds), f" for {dials}")
    angles = [[place * speed for place in places] for speed in speeds]

    def draw(scheme: Scheme) -> Figure:
        columns = min(len(speeds), 8 if len(speeds) > 12 else 4 if len(speeds) > 3 else 3)
        width = 1.9 * columns if columns > 4 else 2.1 * columns
        figure, panels = scheme.panels_in_rows(len(speeds), columns, width, 2.15)
        for pair, axes in enumerate(panels):
            axes.axis("off")
            _dial(axes, scheme, places, angles[pair])
            words = f"pair {pair}\n{short(speeds[pair])} rad per position"
            axes.set_title(words, fontsize=8, color=scheme.ink)
        return figure

    ends = f"{short(places[0])} to {short(places[-1])}"
    turned = [abs(hands[-1] - hands[0]) / (2 * math.pi) for hands in angles]
    alt = (
        f"{dials}, one for each pair of dimensions, with hands at positions {ends}. Between them, "
        f"pair 0 makes {short(turned[0])} turns"
        + (f" and pair {len(speeds) - 1} makes {short(turned[-1])}." if len(speeds) > 1 else ".")
    )
    return Picture(draw, alt, {"frequencies": speeds, "positions": places, "angles": angles})


def corkscrew(frequencies: Numbers, positions: Numbers) -> Picture:
    """Return the path of a pair over positions, a panel for each frequency.

    frequencies: radians per position, at most 4.
    positions: increasing. At position 0, the pair is the vector (1, 0).

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> fast, *_, slow = RotarySpec(head_dim=8, theta=100.0).inverse_frequencies().tolist()
        >>> picture = figures.corkscrew([fast, slow], positions=range(65))
        >>> [round(number, 3) for number in picture.data["paths"][0][1]]  # cos and sin, position 1
        [0.54, 0.841]
    """
    speeds = row("frequencies", frequencies)
    speeds = at_most("frequencies", speeds, MOST_PATHS, ", one for each panel")
    places = increasing("positions", positions, least=2)
    turns = [abs(f) * (places[-1] - places[0]) / (2 * math.pi) for f in speeds]
    if max(turns) > MOST_TURNS:
        raise ValueError(
            f"positions must make at most {MOST_TURNS} turns, got {short(max(turns))} at "
            f"{short(speeds[turns.index(max(turns))])} rad per position; use a shorter range of "
            f"positions, or slower pairs"
        )
    paths = [[[math.cos(p * f), math.sin(p * f)] for p in places] for f in speeds]

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.2, 1.8 * len(speeds) + 0.1)
        panels = figure.subplots(len(speeds), 1, squeeze=False)[:, 0]
        for axes, speed, path in zip(panels, speeds, paths, strict=True):
            _path(axes, scheme, speed, places, path)
        return figure

    told = [f"{short(t)} turns at {short(f)} rad" for f, t in zip(speeds, turns, strict=True)]
    alt = (
        f"Paths of a pair over positions {short(places[0])} to {short(places[-1])}, like "
        f"corkscrews. The panels: {joined(told)} per position. Each position adds the same angle."
    )
    return Picture(draw, alt, {"frequencies": speeds, "positions": places, "paths": paths})


def cos_sin_tables(cos: Matrix, sin: Matrix, positions: Numbers = None) -> Picture:
    """Return tables of cos and sin as shades: positions down, pairs across.

    cos, sin: `(S, R/2)`, as `RotaryEmbedding.tables` returns them.
    positions: the position of each row, evenly spaced; 0, 1, … by default.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, figures
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=64)).tables(torch.arange(128))
        >>> picture = figures.cos_sin_tables(cos, sin)
        >>> len(picture.data["cos"]), len(picture.data["cos"][0])
        (128, 32)
    """
    tables = {"cos": table("cos", cos), "sin": table("sin", sin)}
    shapes = [(len(rows), len(rows[0])) for rows in tables.values()]
    if shapes[0] != shapes[1]:
        raise ValueError(f"cos and sin must have the same shape, got {shapes[0]} and {shapes[1]}")
    length, pairs = shapes[0]
    places = [float(p) for p in range(length)]
    if positions is not None:
        places = like("positions", increasing("positions", positions), "rows of cos", places)
        steps = [b - a for a, b in pairwise(places)]
        if steps and max(steps) - min(steps) > 1e-9 * max(map(abs, places)):
            raise ValueError(
                f"positions must be evenly spaced, got steps from {min(steps)} to {max(steps)}"
            )
    most = max(abs(number) for rows in tables.values() for line in rows for number in line)

    def draw(scheme: Scheme) -> Figure:
        figure, panels = scheme.side_by_side(2, 7.2, 3.6, sharey=True)
        step = (places[-1] - places[0]) / max(1, length - 1) / 2 or 0.5
        extent = (-0.5, pairs - 0.5, places[-1] + step, places[0] - step)
        for axes, (name, numbers) in zip(panels, tables.items(), strict=True):
            image = scheme.heat_map(axes, numbers, most or 1.0, extent=extent)
            scheme.title(axes, name)
            axes.set_xlabel("pair")
        panels[0].set_ylabel("position")
        scheme.scale(figure, panels, image, "cos or sin of the angle")
        return figure

    still = sum(
        all(n > 0 for n in column) or all(n < 0 for n in column)
        for column in zip(*tables["cos"], strict=True)
    )
    alt = (
        f"Tables of cos and sin as shades, positions {short(places[0])} to {short(places[-1])} by "
        f"{_count(pairs, 'pair')}, from {short(-most)} to {short(most)}. Columns of fast pairs "
        f"alternate; {still} of {pairs} columns of cos never change their sign."
    )
    return Picture(draw, alt, {**tables, "positions": places})


def _dial(axes: Axes, scheme: Scheme, places: Row, angles: Row) -> None:
    circle = [2 * math.pi * step / 90 for step in range(91)]
    axes.plot(
        [math.cos(a) for a in circle], [math.sin(a) for a in circle], color=scheme.quiet, lw=0.8
    )
    labeled: Row = []
    for index in [len(places) - 1, *range(len(places) - 1)]:
        x, y = math.cos(angles[index]), math.sin(angles[index])
        axes.plot((0, x), (0, y), color=COLORS[0], lw=0.6 + 1.8 * (index + 1) / len(places))
        if all(math.cos(angles[index] - other) < math.cos(_NEAR) for other in labeled):
            labeled.append(angles[index])
            scheme.note(
                axes, short(places[index]), xy=(1.22 * x, 1.22 * y), ha="center",
                va="center",
            )  # fmt: skip
    axes.set_aspect("equal")
    axes.set_xlim(-1.45, 1.45)
    axes.set_ylim(-1.45, 1.45)


def _path(axes: Axes, scheme: Scheme, speed: float, places: Row, path: list[Row]) -> None:
    """Draw the path in space: positions to the right, dimension 1 into the page, 2 upwards."""
    from matplotlib.ticker import MaxNLocator

    first, last = places[0], places[-1]

    def line(points: list[Row], *form: str, **look: Any) -> None:
        across = [_LONG * (p - first) / (last - first) + 0.5 * one for p, one, _ in points]
        up = [two + 0.35 * one for _, one, two in points]
        axes.plot(across, up, *form, **look)

    def word(text: str, point: Row, **place: Any) -> None:
        at = (_LONG * (point[0] - first) / (last - first) + 0.5 * point[1], point[2])
        scheme.note(axes, text, xy=(at[0], at[1] + 0.35 * point[1]), **place)

    for p in (first, last):
        corners = [[p, x, y] for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))]
        line(corners, color=scheme.quiet, lw=0.7)
    for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
        line([[first, x, y], [last, x, y]], color=scheme.faint, lw=0.7)
    line([[first, 0, 0], [last, 0, 0]], color=scheme.quiet, lw=0.8)
    count = max(600, round(24 * abs(speed) * (last - first) / (2 * math.pi)))  # 24 in a turn
    steps = [first + (last - first) * step / count for step in range(count + 1)]
    line([[p, math.cos(p * speed), math.sin(p * speed)] for p in steps], color=COLORS[0], lw=1.2)
    dots = [[p, *point] for p, point in zip(places, path, strict=True)]
    line(dots, "o", color=COLORS[1], markersize=2.5)
    for tick in MaxNLocator(8).tick_values(first, last):
        if not first <= tick <= last:
            continue
        line([[tick, -1, -1], [tick, -1, -1.1]], color=scheme.ink, lw=0.7)
        word(short(tick), [tick, -1, -1.2], ha="center", va="top")
    word("position", [(first + last) / 2, -1, -1.75], ha="center", va="top")
    word("dimension 2", [first, -1, 0], ha="right", va="center", xytext=(-4, 0),
         textcoords="offset points", rotation=90)  # fmt: skip
    word("dimension 1", [last, 0, -1], ha="left", va="top", xytext=(6, 2),
         textcoords="offset points")  # fmt: skip
    scheme.title(axes, f"{short(speed)} rad per position")
    axes.set_aspect("equal")
    axes.set_xlim(-1.3, _LONG + 2.4)
    axes.set_ylim(-2.4, 1.45)
    axes.axis("off")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
