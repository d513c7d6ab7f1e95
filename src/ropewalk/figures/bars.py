"""Panels of bars, each with its own scale and a line for the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ropewalk.figures.drawing import blank, calm, note, plain, title, width_of
from ropewalk.figures.numbers import named, short
from ropewalk.figures.palette import Scheme, style
from ropewalk.figures.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Bar:
    """A bar's name and length, the ends of its whisker, its label, and the place of its color."""

    name: str
    value: float
    spread: tuple[float, ...]
    label: str
    place: int


def bars(panels: Mapping[str, Sequence[Bar]], x_title: str, limit: float) -> Picture:
    """Return panels of bars below each other, each with its title and a line at the limit."""
    found = {name: [*rows] for name, rows in named("panels", panels).items()}
    names = {bar.name for rows in found.values() for bar in rows}

    def draw(scheme: Scheme) -> Figure:
        heights = [max(1, len(rows)) + 2.4 for rows in found.values()]
        figure = blank(scheme, 5.5 + width_of(names), 0.5 + 0.24 * sum(heights))
        each = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)
        for axes, (name, rows) in zip(each[:, 0], found.items(), strict=True):
            title(axes, scheme, name)
            _draw_rows(axes, scheme, rows)
            axes.axvline(limit, color=scheme.ink, linewidth=1)
            calm(axes, scheme)
            axes.grid(visible=False, axis="y")
            largest = max([limit, *(max(bar.value, *bar.spread) for bar in rows)])
            axes.set_xlim(0, largest * 1.15)  # room for the label of the longest bar
        each[-1, 0].set_xlabel(plain(x_title))
        return figure

    told = [
        f"{name}: " + "; ".join(f"{b.name}, {short(b.value)} ({b.label})" for b in rows)
        for name, rows in found.items()
    ]
    alt = f"Bars: {x_title}, {short(limit)}. {'. '.join(told)}."
    return Picture(draw, alt, {name: [asdict(bar) for bar in rows] for name, rows in found.items()})


def _draw_rows(axes: Axes, scheme: Scheme, rows: Sequence[Bar]) -> None:
    for y, bar in enumerate(rows):
        axes.barh(y, bar.value, height=0.7, color=style(bar.place).color)
        axes.plot(bar.spread, [y] * len(bar.spread), color=scheme.ink, linewidth=1)
        end = max(bar.value, *bar.spread)
        note(
            axes, scheme, bar.label, xy=(end, y), xytext=(4, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [plain(bar.name) for bar in rows])
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
