"""Draw README's picture from committed numbers: error against position, speed against libraries.

    python benchmarks/front_picture.py

Reads results/exactness.json and results/libraries.json (`ropewalk bench --work prefill`, with the
libraries installed). Writes error-and-speed-light.svg and -dark.svg in docs/pictures/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.figures.palette import DARK_PAGE, LIGHT_PAGE, style
from ropewalk.figures.static import new_figure, svg

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
NAME = "error-and-speed"


class Theme(NamedTuple):
    """Colors of the page that the picture is shown on."""

    page: str
    ink: str
    faint: str


THEMES = {
    "light": Theme(LIGHT_PAGE, "#1f2328", "#d8dce1"),
    "dark": Theme(DARK_PAGE, "#e6edf3", "#3a4048"),
}
LINES = {  # name in exactness.json -> name in the picture
    "Llama, .bfloat16()": "transformers after .bfloat16()",
    "transformers, Llama": "transformers, float32",
    "float64 product": "float64 product",
    "ropewalk": "ropewalk",
}
FORM = "into new memory"
DTYPES = {"float32": 0.55, "bfloat16": 1.0}  # and the opacity of their bars


def draw(exactness: dict[str, Any], libraries: dict[str, Any], theme: Theme) -> Any:
    """Return the figure: errors on the left, bars of one workload on the right."""
    figure = new_figure(10.5, 3.6)
    figure.set_facecolor(theme.page)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_errors(left, exactness["sweep"], theme)
    _draw_times(right, libraries["tables"], theme)
    for axes in (left, right):
        axes.set_facecolor(theme.page)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(theme.ink)
        axes.tick_params(colors=theme.ink, labelsize=9)
        axes.xaxis.label.set(size=9, color=theme.ink)
        axes.grid(color=theme.faint, linewidth=0.6)
        axes.set_axisbelow(True)
    right.grid(visible=False, axis="y")
    return figure


def _draw_errors(axes: Any, sweep: dict[str, list[list[float]]], theme: Theme) -> None:
    for place, (name, label) in enumerate(LINES.items()):
        look = style(len(LINES) - 1 - place)
        xs, ys = zip(*sweep[name], strict=True)
        axes.plot(xs, ys, look.marker + "-", color=look.color, ms=4, lw=1.6, label=label)
    axes.set_xscale("log", base=10)
    axes.set_yscale("log")
    axes.set_ylim(top=200)
    axes.set_title(
        "worst error of cos and sin (theta 10,000)", loc="left", fontsize=10, color=theme.ink
    )
    axes.set_xlabel("position")
    legend = axes.legend(frameon=False, fontsize=8.5, ncols=2, loc="upper left")
    for text in legend.get_texts():
        text.set_color(theme.ink)


def _draw_times(axes: Any, tables: list[dict[str, Any]], theme: Theme) -> None:
    """Draw the time of each library as a multiple of copying, a bar for each dtype."""
    times: dict[str, dict[str, float]] = {}
    for table in tables:
        if table["form"] == FORM:
            for row in table["rows"]:
                if not row["limit"] and "without its kernel" not in row["name"]:
                    times.setdefault(row["name"], {})[table["dtype"]] = row["of_copy"]
    names = sorted(times, key=lambda name: min(times[name].values()))
    for place, (dtype, alpha) in enumerate(DTYPES.items()):
        for y, name in enumerate(names):
            color = style(0 if name == "ropewalk" else 2).color
            at = y + (place - 0.5) * 0.4
            value = times[name].get(dtype)
            axes.barh(at, value or 0, height=0.36, color=color, alpha=alpha)
            text = "not timed:" if value is None else f"{value:.1f}"
            axes.annotate(
                f"{text}  {dtype}",
                (value or 0, at),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=theme.ink,
            )
    axes.axvline(1, color=theme.ink, linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    largest = max(value for each in times.values() for value in each.values())
    axes.set_xlim(0, largest * 1.25)  # room for the label of the longest bar
    axes.set_title(
        "time to rotate q and k of a prefill on a CPU", loc="left", fontsize=10, color=theme.ink
    )
    axes.set_xlabel("multiples of the time to copy them (line: 1)")


def pictures() -> dict[str, bytes]:
    """Return the picture of each theme, by file name."""
    exactness, libraries = (
        json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        for name in ("exactness", "libraries")
    )
    return {
        f"{NAME}-{name}.svg": svg(draw(exactness, libraries, theme))
        for name, theme in THEMES.items()
    }


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for file_name, content in pictures().items():
        (PICTURES / file_name).write_bytes(content)
        print(PICTURES / file_name)
