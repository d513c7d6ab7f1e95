"""Plotly figures as plain ``{"data": […], "layout": {…}}``; the page adds its own colours of text and grid.

Encodings come in the order of the comparison, which gives them their colour and shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ropewalk.figures.data import Curve, Outcome, ceiling, mean_curve
from ropewalk.figures.palette import Style, style

Spec = dict[str, Any]


def loss_curves(curves: Mapping[str, Sequence[Curve]], x_title: str, unit: str = "") -> Spec:
    """Loss of every seed as a thin line and their mean as a bold one; a cross where one diverged."""
    data: list[Spec] = []
    for place, (name, seeds) in enumerate(curves.items()):
        look = style(place)
        data += [_seed_line(name, curve, look, unit) for curve in seeds]
        data += [_end(name, curve, look, unit) for curve in seeds if curve.diverged and curve.x]
        mean = mean_curve(seeds)
        if mean is not None:
            data.append(
                {
                    **_line(name, mean, look, unit, f"mean of {_count(seeds)}"),
                    "name": name,
                    "line": {"color": look.colour, "width": 2.5},
                    "showlegend": True,
                }
            )
    layout = _layout(x_title, "loss")
    layout["xaxis"]["rangemode"] = "tozero"
    top = ceiling([curve for seeds in curves.values() for curve in seeds])
    if top is not None:
        kept = [c for seeds in curves.values() for c in seeds if c.x and not c.diverged]
        low = min(min(curve.loss) for curve in kept)
        layout["yaxis"]["range"] = [low - 0.06 * (top - low), top + 0.04 * (top - low)]
    return {"data": data, "layout": layout}


def bleu_by_length(bins: Sequence[str], scores: Mapping[str, Sequence[Sequence[float]]]) -> Spec:
    """BLEU in bins of sentence length; ``scores`` is encoding -> seed -> bin. Lines join the means."""
    data: list[Spec] = []
    for place, (name, seeds) in enumerate(scores.items()):
        look, shift = style(place), _beside(place, len(scores))
        xs = [i + shift for i in range(len(bins))]
        means = [sum(column) / len(column) for column in zip(*seeds, strict=True)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "legendgroup": name,
                "x": xs,
                "y": means,
                "line": {"color": look.colour, "width": 2},
                "marker": {"color": look.colour, "symbol": look.symbol, "size": 9},
                "hovertemplate": f"{_said(name)}, mean: %{{y:.1f}}<extra></extra>",
            }
        )
        dots = [(x, y) for values in seeds for x, y in zip(xs, values, strict=True)]
        data.append(_dots(name, dots, look, f"{_said(name)}, one seed: %{{y:.1f}}"))
    layout = _layout("words in the source sentence", "BLEU")
    layout["xaxis"] |= {
        "tickvals": list(range(len(bins))),
        "ticktext": [_said(label) for label in bins],
        "range": [-0.5, len(bins) - 0.5],
    }
    return {"data": data, "layout": layout}


def bleu_by_encoding(outcomes: Mapping[str, Outcome]) -> Spec:
    """BLEU by encoding, a dot for each seed and a bar for the mean; beside it differences from the first."""
    names = list(outcomes)
    data: list[Spec] = []
    for place, (name, outcome) in enumerate(outcomes.items()):
        look, y = style(place), len(names) - 1 - place
        dots = [(value, y) for value in outcome.values if value is not None]
        data.append(_dots(name, dots, look, f"{_said(name)}, one seed: %{{x:.2f}}", size=8))
        if outcome.mean is not None:
            mean = {"symbol": "line-ns", "size": 22, "line": {"color": look.colour, "width": 3}}
            data.append(_point(name, outcome.mean, y, mean, "mean: %{x:.2f}"))
        if outcome.difference is not None:
            value, low, high = outcome.difference
            marker = {"color": look.colour, "symbol": look.symbol, "size": 10}
            text = f"{value:+.2f} (95 % interval {low:+.2f} to {high:+.2f})"
            point = _point(name, value, y, marker, text) | {"xaxis": "x2"}
            spread = {"type": "data", "array": [high - value], "arrayminus": [value - low]}
            point["error_x"] = spread | {"color": look.colour, "thickness": 2, "width": 6}
            data.append(point)
    layout = _layout("BLEU", "")
    layout["yaxis"] |= {
        "tickvals": list(range(len(names))),
        "ticktext": [_said(name) for name in reversed(names)],
        "range": [-0.6, len(names) - 0.4],
    }
    layout["showlegend"] = False
    if any(outcome.difference for outcome in outcomes.values()):
        layout["xaxis"]["domain"] = [0, 0.46]
        title = {"text": f"difference from {_said(names[0])}"}
        layout["xaxis2"] = {**layout["xaxis"], "domain": [0.54, 1], "title": title, "anchor": "y"}
        zero = {"type": "line", "xref": "x2", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1}
        layout["shapes"] = [zero]
    return {"data": data, "layout": layout}


def _seed_line(name: str, curve: Curve, look: Style, unit: str) -> Spec:
    trace = _line(name, curve, look, unit, f"seed {curve.seed}")
    return trace | {"opacity": 0.45, "line": {"color": look.colour, "width": 1}}


def _line(name: str, curve: Curve, look: Style, unit: str, what: str) -> Spec:
    few = len(curve.x) <= 20
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "legendgroup": name,
        "showlegend": False,
        "x": [round(x, 2) for x in curve.x],
        "y": [round(y, 4) for y in curve.loss],
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 5},
        "hovertemplate": f"{_said(name)}, {what}: %{{y:.3f}} at %{{x:,.0f}}{unit}<extra></extra>",
    }


def _end(name: str, curve: Curve, look: Style, unit: str) -> Spec:
    marker = {"color": look.colour, "symbol": "x", "size": 10}
    text = f"seed {curve.seed} diverged at %{{x:,.0f}}{unit}"
    return _point(name, curve.x[-1], curve.loss[-1], marker, text)


def _dots(
    name: str, dots: Iterable[tuple[float, float]], look: Style, hover: str, size: int = 5
) -> Spec:
    xs, ys = zip(*dots, strict=True) if (dots := list(dots)) else ((), ())
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": name,
        "showlegend": False,
        "x": list(xs),
        "y": list(ys),
        "opacity": 0.55,
        "marker": {"color": look.colour, "symbol": look.symbol, "size": size},
        "hovertemplate": f"{hover}<extra></extra>",
    }


def _point(name: str, x: float, y: float, marker: Spec, hover: str) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": name,
        "showlegend": False,
        "x": [x],
        "y": [y],
        "marker": marker,
        "hovertemplate": f"{_said(name)}, {hover}<extra></extra>",
    }


def _layout(x_title: str, y_title: str) -> Spec:
    return {
        "xaxis": {"title": {"text": x_title}, "fixedrange": True, "zeroline": False},
        "yaxis": {"title": {"text": y_title}, "fixedrange": True, "zeroline": False},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "dragmode": False,
    }


def _beside(place: int, of: int) -> float:
    """Give a small shift along x that keeps encodings from hiding one another."""
    return (place - (of - 1) / 2) * min(0.12, 0.6 / of)


def _count(curves: Sequence[Curve]) -> str:
    kept = sum(not curve.diverged for curve in curves)
    return f"{kept} seed{'s' if kept != 1 else ''}"


def _said(text: str) -> str:
    # Plotly reads a few HTML tags and its own %{…} in any text.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")
