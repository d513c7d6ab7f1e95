"""Figures of the page, read back: these fail if the drawn numbers differ from the given ones."""

from __future__ import annotations

import pytest

from ropewalk.figures import interactive
from ropewalk.figures.drawing import style
from ropewalk.figures.plot_data import Curve, Outcome

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


def test_a_diverged_curve_ends_in_a_cross_and_out_of_the_mean():
    curves = {"a": [Curve(1, (1.0, 2.0), (3.0, 2.0)), Curve(2, (1.0,), (9.0,), diverged=True)]}
    traces = interactive.loss_curves(curves, "steps")["data"]
    assert [t["y"] for t in traces] == [[3.0, 2.0], [9.0], [9.0], [3.0, 2.0]]
    assert traces[2]["marker"]["symbol"] == "x"
    assert [t["showlegend"] for t in traces] == [False, False, False, True]
