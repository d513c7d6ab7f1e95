"""README's picture, from committed numbers: error against position, speed against libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.figures import Picture
from ropewalk.figures.drawing import USUAL, Scheme, plain, style
from ropewalk.figures.plot_data import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {  # name in exactness.json -> name in the picture
    "Llama, .bfloat16()": "transformers after .bfloat16()",
    "transformers, Llama": "transformers, float32",
    "float64 product": "torch, float64 angles",
    "ropewalk": "ropewalk",
}
FORM = "into new memory"
DTYPES = {"float32": 0.55, "bfloat16": 1.0}  # and the opacity of their bars


def drawn(exactness: dict[str, Any], libraries: dict[str, Any]) -> Picture:
    """Return errors on the left, and the bars of one workload on the right."""
    errors = {label: exactness["sweep"][name] for name, label in LINES.items()}
    times = _times(libraries["tables"])

    def draw(scheme: Scheme) -> Figure:
        figure, (left, right) = scheme.side_by_side(2, 10.5, 3.6, width_ratios=(1.15, 1))
        _draw_errors(left, scheme, errors)
        _draw_times(right, scheme, times)
        scheme.calm(left)
        scheme.calm(right)
        right.grid(visible=False, axis="y")
        return figure

    ends = {label: points[-1] for label, points in errors.items()}
    told = [f"{label}: {short(error)} at {short(at)}" for label, (at, error) in ends.items()]
    bars = [
        f"{name}: " + " and ".join(f"{value:.1f} ({dtype})" for dtype, value in each.items())
        for name, each in times.items()
    ]
    alt = (
        f"Left: the worst error of cos and sin by position. {'; '.join(told)}. Right: the time to "
        f"rotate q and k, as a multiple of copying them. {'; '.join(bars)}."
    )
    return Picture(draw, alt, {"errors": errors, "times": times})


def _times(tables: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return each library's time as a multiple of copying, by dtype, the fastest first."""
    times: dict[str, dict[str, float]] = {}
    for table in tables:
        if table["form"] == FORM:
            for row in table["rows"]:
                if not row["limit"] and "without its kernel" not in row["name"]:
                    times.setdefault(row["name"], {})[table["dtype"]] = row["of_copy"]
    return dict(sorted(times.items(), key=lambda item: min(item[1].values())))


def _draw_errors(axes: Axes, scheme: Scheme, errors: dict[str, list[list[float]]]) -> None:
    for place, (label, points) in enumerate(errors.items()):
        look = style(len(errors) - 1 - place)
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, look.marker + "-", color=look.color, ms=4, lw=1.6, label=label)
    axes.set_xscale("log", base=10)
    axes.set_yscale("log")
    columns = 2 if scheme.widest > USUAL else 1
    axes.set_ylim(top=10.0 ** (10 / columns - 2.7))  # room for the legend
    scheme.title(axes, "worst error of cos and sin (theta 10,000)")
    axes.set_xlabel("position")
    look = {"frameon": False, "fontsize": 8.5, "labelcolor": scheme.ink}
    axes.legend(ncols=columns, loc="upper left", **look)


def _draw_times(axes: Axes, scheme: Scheme, times: dict[str, dict[str, float]]) -> None:
    """Draw a bar for each library and dtype."""
    for place, (dtype, alpha) in enumerate(DTYPES.items()):
        for y, (name, each) in enumerate(times.items()):
            color = style(0 if name == "ropewalk" else 2).color
            at = y + (place - 0.5) * 0.4
            value = each.get(dtype)
            axes.barh(at, value or 0, height=0.36, color=color, alpha=alpha)
            text = "not timed:" if value is None else f"{value:.1f}"
            scheme.note(
                axes, f"{text}  {dtype}", xy=(value or 0, at), xytext=(4, 0),
                textcoords="offset points", va="center",
            )  # fmt: skip
    axes.axvline(1, color=scheme.ink, linewidth=1)
    axes.set_yticks(range(len(times)), [plain(name) for name in times])
    axes.set_ylim(len(times) - 0.4, -0.6)
    largest = max(value for each in times.values() for value in each.values())
    room = 1.25 if scheme.widest > USUAL else 1.7  # for the label of the longest bar
    axes.set_xlim(0, largest * room)
    scheme.title(axes, "time to rotate q and k on a CPU")
    axes.set_xlabel("× the time to copy them (line: 1)")
