"""Time spans, tables and differences as text, with enough digits."""

from __future__ import annotations

import io

import pytest
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from published_readme import table_as_markdown
from rich.console import Console

from ropewalk.lab.report.formats import (
    Table,
    TableCell,
    digits_of_difference,
    format_duration,
)
from ropewalk.lab.results import MetricFacts, Verdict
from ropewalk.lab.tasks import CLASSES

BLEU = MetricFacts.model_validate(CLASSES["translation"].metrics[0].facts())


def judged(difference, low, high):
    """A test with these numbers."""
    return Verdict(
        difference=difference,
        low=low,
        high=high,
        p=0.01,
        p_holm=0.01,
        margin=1.0,
        verdict="better",
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.44, "12.4 s"), (59.99, "60.0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds, said):
    assert format_duration(seconds) == said


@given(st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1e-9, 0.0004, -0.04]))
def test_a_difference_has_the_digits_that_show_it(difference):
    """Fails if a small difference is written as 0, or 0 with many digits."""
    digits = digits_of_difference(judged(difference, difference, difference), BLEU)
    written = float(f"{difference:.{digits}f}")
    if round(difference, 6) == 0:
        assert digits == 1
    else:
        assert written != 0
        assert digits == 1 or abs(difference) < 10 ** (1 - digits)


@pytest.mark.parametrize(("low", "digits"), [(0.0, 1), (0.04, 2), (-0.04, 2), (0.06, 1), (-1.0, 1)])
def test_an_end_of_an_interval_is_not_written_as_0(low, digits):
    """Fails if an interval that excludes 0 begins at 0.0."""
    assert digits_of_difference(judged(0.9, low, 1.7), BLEU) == digits


def test_a_table_says_the_same_in_markdown_html_and_a_terminal():
    """Fails if markup in a name is taken for the table's own, or a note is lost."""
    cell = TableCell("1 < 2", ("one", "two"), beside="±3")
    table = Table(["encoding", "a_b"], [["x|y", cell], ["<i>", "–"]])
    assert table_as_markdown(table).splitlines() == [
        "| encoding | a_b |",
        "| --- | --: |",
        r"| x\|y | 1 &lt; 2<br><sub>one · two · ±3</sub> |",
        "| &lt;i&gt; | – |",
    ]
    page = Page(table.html("a <caption>", {"x|y": "<svg></svg>x|y"}))
    assert page.text == "encodinga_bx|y1 < 2 ±3one two<i>–"
    assert ("svg" in page.tags, "i" in page.tags) == (True, False)
    console = Console(file=io.StringIO(), width=80)
    console.print(table.rich("a title"))
    printed = console.file.getvalue()
    assert [line.split() for line in printed.splitlines() if "x|y" in line] == [
        ["x|y", "1", "<", "2"]
    ]
    assert printed.startswith("a title")
