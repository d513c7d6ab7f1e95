"""Translations compared with their reference: the marks change no word."""

from __future__ import annotations

from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.lab.report.page import mark_differences

WORDS = st.lists(st.text("aäB<&>", min_size=1, max_size=4), max_size=8).map(" ".join)


@given(WORDS, WORDS)
def test_marking_differences_changes_no_word(hypothesis, reference):
    marked = mark_differences(hypothesis, reference)
    assert Page(marked.replace('<span class="gap">[…]</span>', "")).text == hypothesis
    assert ("<" in marked) == (hypothesis.split() != reference.split())
