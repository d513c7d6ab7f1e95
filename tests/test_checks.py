"""Values in messages: fails when a message grows with what was given, or cannot be made.

A long string would be echoed whole, an int of 5,000 digits or a list nested 5,000 deep would raise
an error of Python's own in place of ours.
"""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.checks import check_bool, check_int, check_number, shown

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(anything, st.integers(8, 200))
def test_what_is_shown_is_short_and_stands_in_one_line(value, limit):
    text = shown(value, limit)
    assert "\n" not in text
    assert len(text) <= max(limit, 40)


@given(st.integers(-(10**9), 10**9) | st.text(max_size=10) | st.none() | st.floats())
def test_what_is_short_is_shown_as_python_writes_it(value):
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "value",
    ["x" * 300_000, 10**5000, -(10**5000), [10**5000], list(range(10**6)), ("y" * 10**6,)],
    ids=["text", "int", "negative", "int in a list", "list", "text in a tuple"],
)
def test_what_is_long_is_cut(value):
    assert len(shown(value)) <= 80


def test_a_path_is_shown_as_text():
    assert shown(pathlib.PurePosixPath("a/b")) == "'a/b'"


def test_what_is_nested_too_deep_is_named():
    nested: list[object] = []
    for _ in range(200_000):  # how deep repr() goes differs between versions of Python
        nested = [nested]
    assert shown(nested) == "a list too long to show"


@pytest.mark.parametrize("check", [lambda v: check_int("n", v, 1), lambda v: check_number("n", v)])
@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), "x" * 300_000], ids=["int", "negative", "text"]
)
def test_checks_cut_what_they_were_given(check, value):
    with pytest.raises((TypeError, ValueError), match=r"^n must be") as raised:
        check(value)
    assert len(str(raised.value)) < 200
    with pytest.raises(TypeError, match=r"^n must be True or False"):
        check_bool("n", value)
