"""JSON in a script element cannot end the element; colors and pictures are those of the schemes."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.figures.drawing import DARK, LIGHT
from ropewalk.figures.interactive import scheme_css, script_json
from ropewalk.figures.picture import picture_html


@given(
    st.recursive(
        st.text() | st.floats() | st.none(),
        lambda held: st.lists(held) | st.dictionaries(st.text(), held),
    )
)
def test_json_in_a_script_can_not_end_it(value):
    text = script_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == _without_nan(value)


def _without_nan(value):
    if isinstance(value, dict):
        return {name: _without_nan(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def test_the_colors_of_both_schemes_are_in_the_css():
    light, dark = scheme_css().split("@media (prefers-color-scheme: dark)")
    for css, scheme in ((light, LIGHT), (dark, DARK)):
        assert dict(re.findall(r"--(\w+): (#\w+);", css)) == vars(scheme)


def test_a_picture_in_a_page_has_both_schemes_and_its_words():
    assert picture_html("a/b", "svg", 'x < "y"') == (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="a/b-dark.svg">\n'
        '  <img alt="x &lt; &quot;y&quot;" src="a/b-light.svg">\n</picture>'
    )
