"""The README says what the committed results say.

This fails if a table in the README was edited by hand, or results were replaced without it.
"""

import re
from pathlib import Path

import pytest

from ropewalk.lab.report.readme import with_excerpt
from ropewalk.lab.results import read_results

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = re.findall(r"<!-- result: (\S+) -->", README)


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_those_of_the_committed_results(name):
    assert with_excerpt(README, name, read_results(ROOT / name)) == README


def test_there_is_a_result_and_every_link_leads_somewhere():
    assert NAMES
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link.partition("#")[0]).exists(), link
