"""Wavelengths of pairs, on a logarithmic axis, with lines at the lengths of contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ropewalk.figures.palette import style
from ropewalk.figures.static import INK, calm, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Line:
    """A rope's name and the wavelength of each pair; nan if a pair does not rotate."""

    name: str
    wavelengths: tuple[float, ...]
    dashed: bool = False


def wavelength_figure(lines: Sequence[Line], contexts: Mapping[str, int]) -> Figure:
    """Draw wavelengths by pair. Pairs below a context's line make a full turn within it."""
    figure = new_figure(7.0, 3.8)
    axes = figure.subplots()
    for place, line in enumerate(lines):
        look = style(place)
        mark = "--" if line.dashed else "-"
        axes.plot(line.wavelengths, mark, color=look.color, linewidth=1.8, label=line.name)
    axes.set_yscale("log")
    for place, (label, length) in enumerate(contexts.items()):
        axes.axhline(length, color=INK, linewidth=0.8, linestyle=":")
        side, at = ("right", 0.99) if place % 2 else ("left", 0.01)  # neighbors may be close
        axes.annotate(
            label, (at, length), (0, 2), xycoords=("axes fraction", "data"), ha=side,
            textcoords="offset points", fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_xlabel("pair")
    axes.set_ylabel("positions per full turn")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    calm(axes)
    return figure
