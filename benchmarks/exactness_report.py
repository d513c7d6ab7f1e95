"""Tables and a figure of `exactness.py`'s numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common import table

from ropewalk.figures import Picture
from ropewalk.figures.drawing import Scheme, style
from ropewalk.figures.plot_data import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def shown(results: dict[str, Any]) -> str:
    """Return the tables of what was measured."""
    at = {(r["theta"], r["name"], r["end"]): r for r in results["rows"]}
    thetas, names, ends = (
        list(dict.fromkeys(r[of] for r in results["rows"])) for of in ("theta", "name", "end")
    )
    parts = []
    for theta in thetas:
        far = ["rms", "output", "score"]
        head = [f"theta {theta:,.0f}", *(f"{end:,}" for end in ends), *far]
        cells = [
            [
                name,
                *(number(at.get((theta, name, end)), "worst") for end in ends),
                *(number(at.get((theta, name, ends[-1])), measure) for measure in far),
            ]
            for name in names
            if any((theta, name, end) in at for end in ends)
        ]
        parts.append(table(head, cells))
    head = ["up to ±2^31", "theta", "worst", "rms", "output"]
    cells = [
        [
            row["name"] + ("" if row["rule"] == "none" else f", {row['rule']}"),
            f"{row['theta']:,.0f}",
            *(number(row, measure) for measure in ("worst", "rms", "output")),
        ]
        for row in results["rules"]
    ]
    parts.append(table(head, cells))
    parts.append("\n".join(
        f"{row['claim']}: {row['measured']:.2g} (claimed: at most {row['limit']:g})"
        for row in results["claims"]
    ))  # fmt: skip
    if results["absent"]:
        parts.append(f"not installed, or import failed: {', '.join(results['absent'])}")
    if "transformers" in results["absent"]:
        parts.append("transformers' rows are copies of its formulas")
    return "\n\n".join(parts)


def number(row: dict[str, Any] | None, measure: str) -> str:
    """Return an error with two digits, or a dash if there is none."""
    return "–" if row is None else f"{row[measure]:.1e}"


def drawn(curves: dict[str, list[list[float]]], claim: float) -> Picture:
    """Return the error against the position, both logarithmic, and a claim."""

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.2, 3.8)
        axes = figure.subplots()
        for place, (name, points) in enumerate(curves.items()):
            look = style(place)
            xs, ys = zip(*points, strict=True)
            size = 3 + place  # if two lines coincide, the later one shows around the earlier
            axes.plot(xs, ys, look.marker + "-", color=look.color, ms=size, zorder=9 - place)
            axes.lines[-1].set_label(name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhline(claim, color=scheme.ink, linewidth=0.8, linestyle="--")
        scheme.note(axes, "claimed", xy=(15, claim * 1.2))
        axes.set_xlabel("position")
        axes.set_ylabel("worst error of cos and sin")
        scheme.title(axes, "")
        scheme.names_beside(figure, [axes])
        scheme.calm(axes)
        return figure

    told = [
        f"{name}, {short(points[0][1])} at {short(points[0][0])}, "
        f"{short(points[-1][1])} at {short(points[-1][0])}"
        for name, points in curves.items()
    ]
    alt = f"Worst error of cos and sin by position, theta 10,000. The lines: {'; '.join(told)}; "
    return Picture(draw, alt + f"claimed, at most {short(claim)}.", {"errors": curves})
