"""Translations beside their reference: marking what differs changes no word."""

from __future__ import annotations

import pytest
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import results, write_run

from ropewalk.lab.report import write_report
from ropewalk.lab.report.sections import mark_differences


@pytest.fixture(scope="module")
def facts():
    return results()


@pytest.fixture(scope="module")
def page(facts, tmp_path_factory):
    path = write_report(write_run(tmp_path_factory.mktemp("run"), facts))
    assert path.name == "report.html"
    assert path.stat().st_size < 10_000_000
    return Page(path.read_text(encoding="utf-8"))


WORDS = st.lists(st.text("aäB<&>", min_size=1, max_size=4), max_size=8).map(" ".join)


@given(WORDS, WORDS)
def test_marking_differences_changes_no_word(hypothesis, reference):
    marked = mark_differences(hypothesis, reference)
    assert Page(marked.replace('<span class="gap">[…]</span>', "")).text == hypothesis
    assert ("<" in marked) == (hypothesis.split() != reference.split())
