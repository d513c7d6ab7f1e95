"""Colors of the two schemes, light and dark; the look of each encoding in every figure."""

from __future__ import annotations

from dataclasses import dataclass

# Blue, vermilion and green after Okabe and Ito (2008), darkened so that each has a contrast of at
# least 3 : 1 (WCAG 2.2, 1.4.11) on the light page and the dark one; color-blind readers see all
# five as different.
COLORS = ("#0072B2", "#D55E00", "#00936B", "#9673E8", "#D90041")
LIGHT_PAGE, DARK_PAGE = "#ffffff", "#14171b"


@dataclass(frozen=True)
class Scheme:
    """Colors around the data: the page, words and axes, and what is less prominent."""

    page: str
    ink: str  # words and axes: at least 4.5 : 1 on the page (WCAG 2.2, 1.4.3)
    soft: str  # words that are less prominent: at least 4.5 : 1 too
    quiet: str  # circles and comparison lines: at least 3 : 1
    faint: str  # grid lines, which carry no information
    wash: str  # the background of menus
    above: str  # ends of shades, for numbers above 0 and below: at least 4.5 : 1
    below: str


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
