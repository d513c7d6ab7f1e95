"""JSON in a script element cannot end the element."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.figures.html import script_json


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
