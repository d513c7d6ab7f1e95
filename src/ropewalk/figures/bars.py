"""Panels of bars, each with its own scale and a line for the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ropewalk.figures.palette import style
from ropewalk.figures.static import INK, calm, new_figure

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


def bars(panels: Mapping[str, Sequence[Bar]], x_title: str, limit: float) -> Figure:
    """Draw the panels below each other, each with its title and a line at the limit."""
    heights = [max(1, len(rows)) + 2.4 for rows in panels.values()]
    figure = new_figure(7.5, 0.5 + 0.24 * sum(heights))
    each = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, (title, rows) in zip(each[:, 0], panels.items(), strict=True):
        axes.set_title(title, loc="left", fontsize=9)
        _draw(axes, rows)
        axes.axvline(limit, color=INK, linewidth=1)
        calm(axes)
        axes.grid(visible=False, axis="y")
        largest = max([limit, *(max(bar.value, *bar.spread) for bar in rows)])
        axes.set_xlim(0, largest * 1.15)  # room for the label of the longest bar
    each[-1, 0].set_xlabel(x_title)
    return figure


def _draw(axes: Axes, rows: Sequence[Bar]) -> None:
    for y, bar in enumerate(rows):
        axes.barh(y, bar.value, height=0.7, color=style(bar.place).color)
        axes.plot(bar.spread, [y] * len(bar.spread), color=INK, linewidth=1)
        end = max(bar.value, *bar.spread)
        axes.annotate(
            bar.label, (end, y), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(rows)), [bar.name for bar in rows])
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
