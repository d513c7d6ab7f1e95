"""Matplotlib figures, drawn without pyplot and its global state: each call returns a new figure.

Encodings are in the order of the comparison, which sets their color and shape.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ropewalk.figures.data import (
    Curve,
    Outcome,
    ceiling,
    mean_curve,
    means_by_length,
    spans_decades,
)
from ropewalk.figures.palette import LIGHT, LIGHT_PAGE, Scheme, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = Sequence[Sequence[float]]

INK, _FAINT = LIGHT.ink, LIGHT.faint


def loss_curves(
    training: Mapping[str, Sequence[Curve]],
    validation: Mapping[str, Sequence[Curve]],
    x_title: str,
) -> Figure:
    """Draw training and validation loss: seeds thin, means bold, a cross where one diverged."""
    figure = new_figure(8.0, 3.2)
    panels = figure.subplots(1, 2)
    for axes, title, curves in zip(
        panels, ("training loss", "validation loss"), (training, validation), strict=True
    ):
        for place, (name, seeds) in enumerate(curves.items()):
            _draw_seeds(axes, name, seeds, place)
        top = ceiling([curve for seeds in curves.values() for curve in seeds])
        if top is not None:
            axes.set_ylim(top=top * 1.02)
        axes.set_xlabel(x_title)
        axes.set_title(title, loc="left", fontsize=10)
        calm(axes)
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def score_by_length(
    bins: Sequence[str],
    scores: Mapping[str, Sequence[Sequence[float | None]]],
    x_title: str = "words in the source sentence",
    y_title: str = "BLEU",
    *,
    logarithmic: bool = False,
) -> Figure:
    """Draw a score by length; `scores` is encoding -> seed -> bin. Lines connect the means.

    If a seed has no score (None), there is no mean.
    """
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    for place, (name, seeds) in enumerate(scores.items()):
        look = style(place)
        shift = (place - (len(scores) - 1) / 2) * min(0.12, 0.6 / len(scores))
        xs = [i + shift for i in range(len(bins))]
        means = _with_gaps(means_by_length(seeds))
        axes.plot(xs, means, look.line, color=look.color, marker=look.marker, label=name)
        for values in seeds:
            known = _with_gaps(values)
            axes.plot(xs, known, look.marker, color=look.color, markersize=3, alpha=0.5)
    if logarithmic and spans_decades(scores):
        axes.set_yscale("log")
    axes.set_xticks(range(len(bins)), bins)
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    axes.legend(frameon=False, fontsize=9)
    calm(axes)
    return figure


def score_by_encoding(
    outcomes: Mapping[str, Outcome], score: str = "BLEU", tested_metric: str = ""
) -> Figure:
    """Draw a score, dots for seeds and a bar for the mean, next to differences from the first.

    `tested_metric`: the score of the differences, if it is another one.
    """
    names = list(outcomes)
    compared = any(outcome.difference for outcome in outcomes.values())
    figure = new_figure(8.0, 1.1 + 0.42 * len(names))
    panels = figure.subplots(1, 1 + compared, sharey=True, squeeze=False)[0]
    for place, outcome in enumerate(outcomes.values()):
        look = style(place)
        known = [value for value in outcome.values if value is not None]
        panels[0].plot(
            known, [place] * len(known), look.marker, color=look.color, markersize=6, alpha=0.6
        )
        if outcome.mean is not None:
            panels[0].plot(
                outcome.mean, place, "|", color=look.color, markersize=20, markeredgewidth=2.5
            )
        if outcome.difference is not None:
            value, low, high = outcome.difference
            panels[1].errorbar(
                value,
                place,
                xerr=[[value - low], [high - value]],
                fmt=look.marker,
                color=look.color,
                capsize=4,
            )
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    panels[0].set_xlabel(score)
    if compared:
        panels[1].axvline(0, color=INK, linewidth=0.8)
        which = f"difference in {tested_metric}" if tested_metric else "difference"
        panels[1].set_xlabel(f"{which} from {names[0]}, 95 % interval")
    for axes in panels:
        calm(axes)
    return figure


def attention_heads(maps: Mapping[str, Sequence[Sequence[Matrix]]]) -> Figure:
    """Draw every head's attention, small, without tokens: encoding -> layer -> head -> (S, T)."""
    layers = max(len(stack) for stack in maps.values())
    heads = max(len(layer) for stack in maps.values() for layer in stack)
    side = min(0.55, 9.0 / (heads * len(maps)))
    figure = new_figure(len(maps) * (heads * side + 0.35), layers * side + 0.7)
    blocks = figure.subfigures(1, len(maps), squeeze=False)[0]
    for place, (block, (name, stack)) in enumerate(zip(blocks, maps.items(), strict=True)):
        block.suptitle(name, fontsize=9, color=style(place).color)
        grid = block.subplots(layers, heads, squeeze=False)
        for row, layer in zip(grid, stack, strict=False):
            for axes, weights in zip(row, layer, strict=False):
                _draw_map(axes, weights, style(place).color)
                axes.set_xticks([])
                axes.set_yticks([])
        for index in range(layers):
            grid[index][0].set_ylabel(
                f"{index + 1}", fontsize=7, rotation=0, labelpad=6, va="center"
            )
    return figure


def png(figure: Figure, dpi: int = 130) -> bytes:
    """Return the figure as a PNG file; the same figure always has the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    return file.getvalue()


def svg(figure: Figure) -> bytes:
    """Return the figure as an SVG file; the same figure always has the same bytes."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "ropewalk"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches; raise ImportError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "figures need matplotlib, which is not installed: pip install 'ropewalk[lab]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT_PAGE)


def _with_gaps(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _draw_seeds(axes: Axes, name: str, seeds: Sequence[Curve], place: int) -> None:
    look = style(place)
    for curve in seeds:
        axes.plot(curve.x, curve.loss, color=look.color, linewidth=0.8, alpha=0.4)
        if curve.diverged and curve.x:
            axes.plot(curve.x[-1], curve.loss[-1], "x", color=look.color, markersize=8)
    mean = mean_curve(seeds)
    if mean is not None:
        axes.plot(mean.x, mean.loss, look.line, color=look.color, linewidth=2, label=name)


def _draw_map(axes: Axes, weights: Matrix, color: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    axes.spines[:].set_color(_FAINT)
    shades = LinearSegmentedColormap.from_list("weight", [LIGHT_PAGE, color])
    # The square root makes the many small weights visible; the scale is 0 to 1 in every map.
    return axes.imshow(
        weights,
        cmap=shades,
        norm=PowerNorm(0.5, vmin=0, vmax=1),
        aspect="auto",
        interpolation="nearest",
    )


def calm(axes: Axes, scheme: Scheme = LIGHT) -> None:
    """Make axes less prominent than the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(scheme.ink)
    axes.tick_params(colors=scheme.ink, labelsize=8)
    axes.xaxis.label.set(size=9, color=scheme.ink)
    axes.yaxis.label.set(size=9, color=scheme.ink)
    axes.grid(color=scheme.faint, linewidth=0.6)
    axes.set_axisbelow(True)
