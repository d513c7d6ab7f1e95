"""Fixtures: a synthetic run, and the page written from it."""

from __future__ import annotations

import pytest
from html_pages import Page
from synthetic_run import results, write_run

from ropewalk.lab.report import write_report


@pytest.fixture(scope="module")
def facts():
    return results()


@pytest.fixture(scope="module")
def page(facts, tmp_path_factory):
    path = write_report(write_run(tmp_path_factory.mktemp("run"), facts))
    assert path.name == "report.html"
    assert path.stat().st_size < 10_000_000
    return Page(path.read_text(encoding="utf-8"))
