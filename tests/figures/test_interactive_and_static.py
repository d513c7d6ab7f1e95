"""Figures, read back: these fail if the drawn numbers differ from the given ones."""

from __future__ import annotations

import pytest

from ropewalk.figures import interactive, static
from ropewalk.figures.data import Curve, Outcome
from ropewalk.figures.palette import style

OUTCOMES = {
    "sinusoidal": Outcome((36.5, 37.9), 37.2),
    "rotary": Outcome((39.0, None), None, (2.4, 1.1, 3.7)),
}


def test_plotly_outcome_is_what_was_given():
    traces = interactive.score_by_encoding(OUTCOMES)["data"]
    assert [(t["x"], t["y"]) for t in traces] == [
        ([36.5, 37.9], [0, 0]),
        ([37.2], [0]),
        ([39.0], [1]),
    ]
    (point,) = interactive.differences(OUTCOMES)["data"]
    assert (point["x"], point["y"]) == ([2.4], [1])
    assert point["error_x"]["array"] == pytest.approx([1.3])
    assert point["error_x"]["arrayminus"] == pytest.approx([1.3])
    assert point["marker"]["color"] == style(1).color


def test_matplotlib_outcome_is_what_was_given():
    scores, difference = static.score_by_encoding(OUTCOMES).axes
    assert [list(line.get_xdata()) for line in scores.lines] == [[36.5, 37.9], [37.2], [39.0]]
    bar = difference.containers[0]
    assert bar.lines[0].get_xdata() == [2.4]
    ends = bar.lines[2][0].get_segments()[0]
    assert ends.tolist() == [pytest.approx([1.1, 1]), pytest.approx([3.7, 1])]


def test_matplotlib_lengths_and_losses_are_what_was_given():
    axes = static.score_by_length(["1–5", "6"], {"none": [[30.0, 20.0], [32.0, 26.0]]}).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [
        [31.0, 23.0],
        [30.0, 20.0],
        [32.0, 26.0],
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1–5", "6"]
    curve = Curve(1, (1.0, 2.0), (3.0, 2.5))
    figure = static.loss_curves({"a": [curve]}, {"a": [curve], "b": [curve]}, "steps")
    assert [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes] == [
        [[3.0, 2.5]] * 2,
        [[3.0, 2.5]] * 4,
    ]
    assert figure.axes[1].lines[2].get_color() == style(1).color


def test_matplotlib_maps_are_what_was_given():
    weights = [[0.2, 0.8], [1.0, 0.0]]
    other = [[0.5, 0.5], [0.1, 0.9]]
    figure = static.attention_heads({"none": [[weights, other]], "rotary": [[other, weights]]})
    shown = [axes.images[0].get_array().tolist() for part in figure.subfigs for axes in part.axes]
    assert shown == [weights, other, other, weights]
    assert {
        image.norm.vmax for part in figure.subfigs for a in part.axes for image in a.images
    } == {1}


def test_a_diverged_curve_ends_in_a_cross_and_out_of_the_mean():
    curves = {"a": [Curve(1, (1.0, 2.0), (3.0, 2.0)), Curve(2, (1.0,), (9.0,), diverged=True)]}
    traces = interactive.loss_curves(curves, "steps")["data"]
    assert [t["y"] for t in traces] == [[3.0, 2.0], [9.0], [9.0], [3.0, 2.0]]
    assert traces[2]["marker"]["symbol"] == "x"
    assert [t["showlegend"] for t in traces] == [False, False, False, True]
    assert static.loss_curves(curves, curves, "steps").axes[0].lines[2].get_marker() == "x"
