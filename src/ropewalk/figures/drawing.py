"""Parts that several pictures have: axes, lines, maps of numbers with their scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.figures.numbers import Table
from ropewalk.figures.palette import Scheme
from ropewalk.figures.static import calm, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["blank", "calm", "heat_map", "legend", "note", "plain", "scale", "title"]


def blank(scheme: Scheme, width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, on the scheme's page."""
    figure = new_figure(width, height)
    figure.set_facecolor(scheme.page)
    return figure


def plain(text: str) -> str:
    """Return words so that matplotlib writes them as they are: no formulas, no hidden names."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def title(axes: Axes, scheme: Scheme, text: str, pad: float = 6) -> None:
    """Write a panel's title above its left end, `pad` points away; give it the page's color."""
    axes.set_facecolor(scheme.page)
    axes.set_title(plain(text), loc="left", fontsize=9, color=scheme.ink, pad=pad)


def note(axes: Axes, scheme: Scheme, text: str, **place: Any) -> None:
    """Write words at a place in the panel."""
    axes.annotate(plain(text), fontsize=8, color=scheme.ink, **place)


def legend(axes: Axes, scheme: Scheme, room: int = 88) -> None:
    """Name the lines of a panel above it, in as many columns as `room` characters allow."""
    names = axes.get_legend_handles_labels()[1]
    columns = max(1, min(len(names), room // (max(map(len, names)) + 6)))
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": scheme.ink}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, **look)


def heat_map(
    axes: Axes,
    scheme: Scheme,
    numbers: Table,
    most: float,
    *,
    signed: bool = True,
    extent: tuple[float, float, float, float] | None = None,
) -> Any:
    """Draw numbers as shades: orange below 0, the page's color at 0, blue above.

    Without `signed`, shades go from the page's color to blue. nan is drawn gray.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ends = [scheme.page, scheme.above]
    ends = [scheme.below, *ends] if signed else ends
    shades = LinearSegmentedColormap.from_list("shades", ends).with_extremes(bad=scheme.quiet)
    axes.set_facecolor(scheme.page)
    image = axes.imshow(
        numbers,
        cmap=shades,
        vmin=-most if signed else 0,
        vmax=most,
        aspect="auto",
        interpolation="none",  # one pixel for each number, in SVG too
        extent=extent,
    )
    axes.spines[:].set_color(scheme.faint)
    axes.tick_params(colors=scheme.ink, labelsize=8)
    axes.xaxis.label.set(size=9, color=scheme.ink)
    axes.yaxis.label.set(size=9, color=scheme.ink)
    return image


def scale(
    figure: Figure, axes: Any, scheme: Scheme, image: Any, unit: str, *, below: bool = False
) -> Any:
    """Draw what the shades of a map mean, to the right of the panels `axes` or below them."""
    place = {"location": "bottom", "pad": 0.02} if below else {"fraction": 0.06, "pad": 0.02}
    bar = figure.colorbar(image, ax=axes, **place)
    bar.ax.tick_params(colors=scheme.ink, labelsize=8)
    bar.set_label(unit, color=scheme.ink, fontsize=9)
    bar.outline.set_edgecolor(scheme.faint)
    return bar
