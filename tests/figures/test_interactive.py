"""Figures of the page, read back, and the page's JSON and colors.

These fail if drawn numbers differ from the given ones, if JSON can end its script element, or if
colors and pictures are not those of the schemes.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.figures import interactive
from ropewalk.figures.drawing import COLORS, DARK, DARK_COLORS, LIGHT, style
from ropewalk.figures.interactive import scheme_css, script_json
from ropewalk.figures.picture import picture_html
from ropewalk.figures.plot_data import Curve, Outcome

LEAVES = st.text() | st.floats() | st.none()
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


@given(st.dictionaries(st.text(), LEAVES | st.lists(LEAVES | st.dictionaries(st.text(), LEAVES))))
def test_json_in_a_script_can_not_end_it(value):
    text = script_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == json.loads(json.dumps(value), parse_constant=lambda _: None)


def test_the_colors_of_both_schemes_are_in_the_css():
    light, dark = scheme_css().split("@media (prefers-color-scheme: dark)")
    for css, scheme, marks in ((light, LIGHT, COLORS), (dark, DARK, DARK_COLORS)):
        assert dict(re.findall(r"--(\w+): ([^;]+);", css)) == {
            **{name: color for name, color in vars(scheme).items() if name != "widest"},
            **{f"mark{place}": color for place, color in enumerate(marks)},
        }


def test_a_picture_in_a_page_has_both_schemes_and_its_words():
    assert picture_html("a/b", "svg", 'x < "y"') == (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="a/b-dark.svg">\n'
        '  <img alt="x &lt; &quot;y&quot;" src="a/b-light.svg">\n</picture>'
    )


def test_a_phone_gets_the_narrow_picture_of_its_scheme():
    """A browser takes the first source that matches, so narrow ones stand before the others."""
    html = picture_html("a", "svg", "x", narrow=True)
    assert re.findall(r'srcset="([^"]+)"', html) == [
        "a-narrow-dark.svg",
        "a-narrow-light.svg",
        "a-dark.svg",
    ]
