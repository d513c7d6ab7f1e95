"""Pages in one file, which load nothing, and the plotly figures in them.

A figure is plain `{"data": […], "layout": {…}}`, to which a page adds the colors of text and grid.
Encodings are in the order of the comparison, which sets their color and shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from string import Template
from typing import Any

from ropewalk.figures.drawing import COLORS, DARK, DARK_COLORS, LIGHT, Scheme, Style, style
from ropewalk.figures.plot_data import (
    Curve,
    Outcome,
    ceiling,
    mean_curve,
    means_by_length,
    shift,
    spans_decades,
)

#: A page under this policy cannot reach a network.
OFFLINE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<link rel="icon" href="data:,">
<style>$css</style>
</head>
<body>
$body
<script type="application/json" id="data">$data</script>
$scripts
</body>
</html>
""")


def html_page(title: str, body: str, *, css: str, scripts: Sequence[str], data: Any) -> str:
    """Return a complete page; `body` is HTML, and scripts find `data` as JSON in `#data`."""
    return _PAGE.substitute(
        title=escape(title),
        body=body,
        css=css,
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
        data=script_json(data),
        policy=OFFLINE,
    )


def scheme_css() -> str:
    """Return CSS with the colors of the reader's scheme.

    They are `--page`, `--ink`, … (see `Scheme`), and `--mark0`, … for the encodings, in order.
    """

    def root(scheme: Scheme, marks: Sequence[str]) -> str:
        colors = {name: value for name, value in asdict(scheme).items() if isinstance(value, str)}
        colors |= {f"mark{place}": color for place, color in enumerate(marks)}
        return f":root {{ {' '.join(f'--{name}: {color};' for name, color in colors.items())} }}\n"

    dark = root(DARK, DARK_COLORS)
    return f"{root(LIGHT, COLORS)}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def script_json(value: Any) -> str:
    """Return JSON that is safe in a script element: no `<`, and null for non-finite numbers."""
    text = json.dumps(
        without_nan(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def without_nan(value: Any) -> Any:
    """Return the value with every number that is not finite replaced by null, as in JSON."""
    if isinstance(value, dict):
        return {name: without_nan(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


Spec = dict[str, Any]


def loss_curves(curves: Mapping[str, Sequence[Curve]], x_title: str, unit: str = "") -> Spec:
    """Draw each seed's loss as a thin line, their mean bold, a cross where a seed diverged."""
    data: list[Spec] = []
    for place, (name, seeds) in enumerate(curves.items()):
        look = style(place)
        thin = {"line": {"color": look.color, "width": 0.7}}
        data += [_line(name, curve, look, unit, f"seed {curve.seed}") | thin for curve in seeds]
        data += [_end(name, curve, look, unit) for curve in seeds if curve.diverged and curve.x]
        mean = mean_curve(seeds)
        if mean is not None:
            count = sum(not curve.diverged for curve in seeds)
            what = f"mean of {count} seed{'s' * (count != 1)}"
            line = {"line": {"color": look.color, "dash": look.dash, "width": 2.5}}
            data.append(_line(name, mean, look, unit, what) | line)
        if seeds:
            data[-1]["showlegend"] = True
    layout = _layout(x_title, "loss")
    layout["xaxis"]["rangemode"] = "tozero"
    top = ceiling([curve for seeds in curves.values() for curve in seeds])
    if top is not None:
        kept = [c for seeds in curves.values() for c in seeds if c.x and not c.diverged]
        low = min(min(curve.loss) for curve in kept)
        layout["yaxis"]["range"] = [low - 0.06 * (top - low), top + 0.04 * (top - low)]
    return {"data": data, "layout": layout}


def score_by_length(
    bins: Sequence[str],
    scores: Mapping[str, Sequence[Sequence[float | None]]],
    x_title: str = "words in the source sentence",
    y_title: str = "BLEU",
    *,
    logarithmic: bool = False,
) -> Spec:
    """Draw a score by length; `scores` is encoding -> seed -> bin. Lines connect the means.

    If a seed has no score (None), there is no mean.
    """
    data: list[Spec] = []
    for place, (name, seeds) in enumerate(scores.items()):
        look, moved = style(place), shift(place, len(scores))
        xs = [i + moved for i in range(len(bins))]
        means = means_by_length(seeds)
        line = {"color": look.color, "dash": look.dash, "width": 2}
        marker = {"color": look.color, "symbol": look.symbol, "size": 9}
        hover = "mean: %{y:,.4~g}"
        data.append(_trace(name, "lines+markers", xs, means, marker, hover, True, line=line))
        dots = [
            (x, y) for values in seeds for x, y in zip(xs, values, strict=True) if y is not None
        ]
        data.append(_dots(name, dots, look, "one seed: %{y:,.4~g}"))
    layout = _layout(_plotly_text(x_title), _plotly_text(y_title))
    layout["xaxis"] |= {
        "tickvals": list(range(len(bins))),
        "ticktext": [_plotly_text(label) for label in bins],
        "range": [-0.5, len(bins) - 0.5],
    }
    if logarithmic and spans_decades(scores):
        layout["yaxis"] |= {"type": "log", "dtick": "D2"}
    return {"data": data, "layout": layout}


def score_by_encoding(outcomes: Mapping[str, Outcome], x_title: str = "BLEU") -> Spec:
    """Draw the score of each encoding: a dot for each seed, a bar for the mean."""
    data: list[Spec] = []
    for y, (name, outcome) in enumerate(outcomes.items()):
        look = style(y)
        dots = [(value, y) for value in outcome.values if value is not None]
        data.append(_dots(name, dots, look, "one seed: %{x:.2f}", size=8))
        if outcome.mean is not None:
            mean = {"symbol": "line-ns", "size": 22, "line": {"color": look.color, "width": 3}}
            data.append(_point(name, outcome.mean, y, mean, "mean: %{x:.2f}"))
    return {"data": data, "layout": _rows_layout(list(outcomes), _plotly_text(x_title))}


def differences(outcomes: Mapping[str, Outcome], score: str = "BLEU") -> Spec:
    """Draw the difference in a score from the first encoding, with its interval."""
    data: list[Spec] = []
    names = list(outcomes)
    for y, (name, outcome) in enumerate(outcomes.items()):
        if outcome.difference is not None:
            value, low, high = outcome.difference
            look = style(y)
            marker = {"color": look.color, "symbol": look.symbol, "size": 10}
            text = f"{value:+.2f} (95 % interval {low:+.2f} to {high:+.2f})"
            spread: Spec = {"type": "data", "array": [high - value], "arrayminus": [value - low]}
            spread |= {"color": look.color, "thickness": 2, "width": 6}
            data.append(_point(name, value, y, marker, text) | {"error_x": spread})
    layout = _rows_layout(names, f"{_plotly_text(score)} above {_plotly_text(names[0])}")
    layout["shapes"] = [{"type": "line", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1}]
    return {"data": data, "layout": layout}


def _line(name: str, curve: Curve, look: Style, unit: str, what: str) -> Spec:
    mode = "lines+markers" if len(curve.x) <= 20 else "lines"
    xs, ys = [round(x, 2) for x in curve.x], [round(y, 4) for y in curve.loss]
    marker = {"color": look.color, "symbol": look.symbol, "size": 5}
    return _trace(name, mode, xs, ys, marker, f"{what}: %{{y:.3f}} at %{{x:,.0f}}{unit}")


def _end(name: str, curve: Curve, look: Style, unit: str) -> Spec:
    marker = {"color": look.color, "symbol": "x", "size": 10}
    text = f"seed {curve.seed} diverged, last seen at %{{x:,.0f}}{unit}"
    return _point(name, curve.x[-1], curve.loss[-1], marker, text)


def _dots(
    name: str, dots: Iterable[tuple[float, float]], look: Style, hover: str, size: int = 5
) -> Spec:
    xs, ys = zip(*dots, strict=True) if (dots := list(dots)) else ((), ())
    marker = {"color": look.color, "symbol": f"{look.symbol}-open", "size": size}
    return _trace(name, "markers", list(xs), list(ys), marker, hover)


def _point(name: str, x: float, y: float, marker: Spec, hover: str) -> Spec:
    return _trace(name, "markers", [x], [y], marker, hover)


def _trace(
    name: str,
    mode: str,
    xs: Sequence[float],
    ys: Sequence[float | None],
    marker: Spec,
    hover: str,
    in_legend: bool = False,
    **more: Any,
) -> Spec:
    """Draw points of an encoding; the encoding's entry in the legend shows and hides them."""
    return {
        "type": "scatter",
        "mode": mode,
        "name": _plotly_text(name),
        "legendgroup": name,
        **({} if in_legend else {"showlegend": False}),
        "x": xs,
        "y": ys,
        **more,
        "marker": marker,
        "hovertemplate": f"{_plotly_text(name)}, {hover}<extra></extra>",
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


def _rows_layout(names: Sequence[str], x_title: str) -> Spec:
    """Return the layout of a figure with one row per encoding, the first on top."""
    layout = _layout(x_title, "")
    layout["yaxis"] |= {
        "tickvals": list(range(len(names))),
        "ticktext": [_plotly_text(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
    }
    return layout | {"showlegend": False}


def _plotly_text(text: str) -> str:
    # Plotly interprets some HTML tags and its own %{…} in any text.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")
