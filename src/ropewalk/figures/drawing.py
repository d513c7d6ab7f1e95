"""What all pictures share: the colors of two schemes, the look of each encoding, and their parts.

Parts are axes, titles, legends, and maps of numbers as shades with their scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ropewalk.figures.plot_data import Row, Table, numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Blue, vermilion and green after Okabe and Ito (2008), darkened so that each has a contrast of at
# least 3 : 1 (WCAG 2.2, 1.4.11) on the light page and the dark one; color-blind readers see all
# five as different.
COLORS = ("#0072B2", "#D55E00", "#00936B", "#9673E8", "#D90041")
# On dark pages in a browser: the same hues with at least 4.5 : 1, in the same order.
DARK_COLORS = ("#258FFA", "#FA5F10", "#1FE58D", "#DDBBFA", "#DE7F95")
LIGHT_PAGE, DARK_PAGE = "#ffffff", "#14171b"


ROOM = 88  # characters of names in a line of a legend above a wide panel
LETTER = 0.07  # inches, of a name's letter in a legend, at a tick or in a title
USUAL = 7.0  # inches, of a figure with one wide panel
NARROW = 4.0  # inches: as wide as a phone shows without making words smaller


@dataclass(frozen=True)
class Scheme:
    """Colors around the data: the page, words and axes, and what is less prominent.

    Its methods draw in these colors what all pictures share, in the width that there is.
    """

    page: str
    ink: str  # words and axes: at least 4.5 : 1 on the page (WCAG 2.2, 1.4.3)
    soft: str  # words that are less prominent: at least 4.5 : 1 too
    quiet: str  # circles and comparison lines: at least 3 : 1
    faint: str  # grid lines, which carry no information
    wash: str  # the background of menus
    above: str  # ends of shades, for numbers above 0 and below: at least 4.5 : 1
    below: str
    widest: float = math.inf  # inches that a figure may have

    def blank(self, width: float, height: float) -> Figure:
        """Return an empty figure of at most this size in inches, on the scheme's page.

        It is drawn without pyplot and its global state. Raises ImportError without matplotlib.
        """
        numpy()  # names the extra if matplotlib is missing
        from matplotlib.figure import Figure

        size = (min(width, self.widest), height)
        return Figure(figsize=size, layout="constrained", facecolor=self.page)

    def side_by_side(
        self, count: int, width: float, height: float, **more: Any
    ) -> tuple[Figure, list[Axes]]:
        """Return a figure and its panels in one row, or below each other in a narrow figure."""
        if width <= self.widest or count == 1:
            figure = self.blank(width, height)
            return figure, list(figure.subplots(1, count, squeeze=False, **more)[0])
        more.pop("width_ratios", None)
        figure = self.blank(width, height * count)
        return figure, list(figure.subplots(count, 1, squeeze=False, **more)[:, 0])

    def panels_in_rows(
        self, count: int, columns: int, width: float, height: float, room: float = 0.0, **more: Any
    ) -> tuple[Figure, list[Axes]]:
        """Return a figure and its panels in rows of this height, with some room around them all.

        A narrow figure has fewer columns.
        """
        if width > self.widest:
            columns = max(1, int(columns * self.widest / width))
        rows = -(-count // columns)
        figure = self.blank(width, height * rows + room)
        panels = figure.subplots(rows, columns, squeeze=False, **more).flatten()
        for axes in panels[count:]:
            axes.axis("off")
        return figure, list(panels[:count])

    def calm(self, axes: Axes) -> None:
        """Make axes less prominent than the data."""
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(self.ink)
        self._label(axes)
        axes.grid(color=self.faint, linewidth=0.6)
        axes.set_axisbelow(True)

    def dress(self, axes: Axes, x: str, y: str, heading: str = "", names: int = 0) -> None:
        """Name a panel and its axes and make them calm.

        names: how many characters a row above the panel has for the names of its lines; 0: none.
        """
        self.title(axes, heading)
        axes.set_xlabel(plain(x))
        axes.set_ylabel(plain(y))
        if names:
            names = int(names * min(1, self.widest / USUAL))
            labels = axes.get_legend_handles_labels()[1]
            columns = max(1, min(len(labels), names // (max(map(len, labels)) + 6)))
            look = self.legend_look()
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, **look)
        self.calm(axes)

    def title(self, axes: Axes, text: str, pad: float = 6) -> None:
        """Write a panel's title above its left end, `pad` points away; give it the page's color."""
        axes.set_facecolor(self.page)
        axes.set_title(plain(text), loc="left", fontsize=9, color=self.ink, pad=pad)

    def note(self, axes: Axes, text: str, **place: Any) -> None:
        """Write words at a place in the panel."""
        axes.annotate(plain(text), fontsize=8, color=self.ink, **place)

    def legend_look(self) -> dict[str, Any]:
        """Return how matplotlib draws a legend."""
        return {"frameon": False, "fontsize": 8, "labelcolor": self.ink}

    def names_beside(self, figure: Figure, panels: Sequence[Axes]) -> None:
        """Name the lines of panels once: at the right, or below the panels of a narrow figure."""
        lines: dict[str, Any] = {}
        for axes in panels:
            for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
                lines.setdefault(name, line)
        look = self.legend_look() | {"handlelength": 3.2}  # a full period of the longest dashes
        if self.widest == math.inf:
            figure.legend(lines.values(), lines.keys(), loc="outside right upper", **look)
            return
        columns = max(1, int(self.widest / width_of(lines)))
        figure.set_figheight(figure.get_figheight() + 0.17 * -(-len(lines) // columns))
        look["ncols"] = columns
        figure.legend(lines.values(), lines.keys(), loc="outside lower left", **look)

    def heat_map(
        self,
        axes: Axes,
        numbers: Table,
        most: float,
        *,
        signed: bool = True,
        root: bool = False,
        extent: tuple[float, float, float, float] | None = None,
    ) -> Any:
        """Draw numbers as shades: orange below 0, the page's color at 0, blue above.

        Without `signed`, shades go from the page's color to blue, and with `root` in proportion to
        the square root. nan is drawn gray.
        """
        from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

        colors = [*([self.below] if signed else []), self.page, self.above]
        shades = LinearSegmentedColormap.from_list("shades", colors).with_extremes(bad=self.quiet)
        axes.set_facecolor(self.page)
        low = -most if signed else 0
        image = axes.imshow(
            numbers,
            cmap=shades,
            norm=PowerNorm(0.5, low, most) if root else Normalize(low, most),
            aspect="auto",
            interpolation="none",  # one pixel for each number, in SVG too
            extent=extent,
        )
        axes.spines[:].set_color(self.faint)
        self._label(axes)
        return image

    def scale(
        self, figure: Figure, axes: Any, image: Any, unit: str, *, below: bool = False
    ) -> Any:
        """Draw what the shades of a map mean, to the right of the panels `axes` or below them.

        In a narrow figure it is below.
        """
        below = below or self.widest < math.inf
        place = {"location": "bottom", "pad": 0.02} if below else {"fraction": 0.06, "pad": 0.02}
        bar = figure.colorbar(image, ax=axes, **place)
        bar.ax.tick_params(colors=self.ink, labelsize=8)
        bar.set_label(unit, color=self.ink, fontsize=9)
        bar.outline.set_edgecolor(self.faint)
        return bar

    def _label(self, axes: Axes) -> None:
        axes.tick_params(which="both", colors=self.ink, labelsize=8)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set(size=9, color=self.ink)


LIGHT = Scheme(
    page=LIGHT_PAGE,
    ink="#1f2328",
    soft="#59636e",
    quiet="#7a828b",
    faint="#d8dce1",
    wash="#f5f6f8",
    above="#0072B2",
    below="#B34F00",
)
DARK = Scheme(
    page=DARK_PAGE,
    ink="#e6e9ed",
    soft="#a1a9b3",
    quiet="#868e97",
    faint="#343a42",
    wash="#1c2127",
    above="#56B4E9",
    below="#F08A3C",
)

# 7 shapes and 5 colors are coprime: a pair of both repeats only after 35 encodings.
_SHAPES = (  # plotly's name, matplotlib's
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("star", "*"),
    ("hexagon", "h"),
)
# Lines without shapes differ in these once colors repeat.
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclass(frozen=True)
class Style:
    """Color, shape and dashes of an encoding.

    plotly calls the latter two `symbol` and `dash`, matplotlib `marker` and `line`.
    """

    color: str
    symbol: str
    marker: str
    dash: str
    line: str


def style(place: int) -> Style:
    """Return the style of the encoding at this place of a comparison, counted from 0."""
    symbol, marker = _SHAPES[place % len(_SHAPES)]
    dash, line = _DASHES[place // len(COLORS) % len(_DASHES)]
    return Style(COLORS[place % len(COLORS)], symbol, marker, dash, line)


def line(
    axes: Axes, place: int, xs: Row, ys: Row, name: str, width: float = 1.5, *, label: str = ""
) -> None:
    """Draw numbers as a line with markers in the style of a place, for the legend or `label`."""
    look = style(place)
    axes.plot(
        xs, ys, look.line, color=look.color, marker=look.marker, markersize=4, linewidth=width,
        label=label or plain(name),
    )  # fmt: skip


def plain(text: str) -> str:
    """Return words so that matplotlib writes them as they are: no formulas, no hidden names."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def width_of(names: Iterable[str]) -> float:
    """Return how wide a column of these names is, in inches, with what is next to each."""
    return 0.6 + LETTER * max(map(len, names), default=0)
