"""What the pages in docs/ refer to is there and says the same.

These fail if a link leads to no heading, if a picture differs from what docs/pictures.py draws or
is on no page, if a number differs from the committed results, or if a published config has another
rule than a page says.
"""

import json
import re
import runpy
from pathlib import Path

import pytest
from published import PUBLISHED

from ropewalk import ModelSpec
from ropewalk.scaling import RULES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\((?!https:)([^)#]*)#([^)]+)\)")
NUMBER = re.compile(r"-?\d+\.\d+")


def headings(page: Path) -> set[str]:
    """Return the anchors of a page: its own, and those that GitHub makes of its headings."""
    text = page.read_text("utf-8")
    lines = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in lines}
    return made | set(re.findall(r'<a id="([\w-]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_to_a_heading_leads_to_one(page):
    """That files are there is checked in tests/test_site.py."""
    for path, anchor in LINK.findall(page.read_text("utf-8")):
        target = page.parent / path if path else page
        assert target.suffix != ".md" or anchor in headings(target), anchor


@pytest.fixture(scope="module")
def drawn():
    """The text of each picture by its file's name, drawn once for both tests."""
    pytest.importorskip("matplotlib", reason="draws the pictures: pip install 'ropewalk[lab]'")
    script = runpy.run_path(str(DOCS / "pictures.py"))
    return {file: text for name in script["PICTURES"] for file, text in script["svg"](name).items()}


class TestPictures:
    @pytest.mark.slow
    def test_they_are_those_of_the_pages(self, drawn):
        shown = {
            name
            for page in PAGES
            for name in re.findall(r'"pictures/([\w-]+\.svg)"', page.read_text("utf-8"))
        }
        assert shown == drawn.keys()

    @pytest.mark.slow
    def test_the_script_draws_them_again(self, drawn):
        """The words are equal; numbers may differ in the last digits between processors."""
        for name, text in drawn.items():
            path = DOCS / "pictures" / name
            committed = path.read_text("utf-8")
            assert path.stat().st_size < 100_000
            assert NUMBER.sub("#", text) == NUMBER.sub("#", committed), name
            ours, theirs = ([float(n) for n in NUMBER.findall(svg)] for svg in (text, committed))
            assert ours == pytest.approx(theirs, abs=1e-3), name


class TestScalingRules:
    PAGE = (DOCS / "choose-a-scaling-rule.md").read_text("utf-8")

    def means(self, results: str, task: str, digits: int) -> dict[str, list[str]]:
        """Return the mean over seeds of each rule at ×2, ×4 and ×8, as the page writes it."""
        runs = json.loads((ROOT / "results" / results / "results.json").read_text("utf-8"))["runs"]
        (scores,) = (run["rules"]["scores"] for run in runs if run["task"] == task)
        lengths = ("x2", "x4", "x8")
        return {
            rule: [f"{sum(seeds[n]) / len(seeds[n]):.{digits}f}" for n in lengths]
            for rule, seeds in scores.items()
        }

    def test_perplexities_are_those_of_the_results(self):
        table = self.PAGE.split("## What was measured here")[1]
        shown = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
        results = self.means("extrapolation", "causal-lm", 2)
        assert shown == {rule: " | ".join(means) for rule, means in results.items()}

    @pytest.mark.parametrize("task", ["recall", "passkey", "copy"])
    def test_exact_answers_are_those_of_the_results(self, task):
        results = self.means("generated", task, 1)
        assert f"{task} {results['none'][-1]} and {results['YaRN'][-1]}" in self.PAGE

    def test_published_models_have_these_rules(self):
        table = self.PAGE.split("## What published models use")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
        assert len(rows) == len(RULES)
        for rule, models in rows:
            for name, factor in re.findall(r"`([\w.-]+)`(?: \((?:s = )?([\d,]+)\b)?", models):
                if name == "truncate":
                    continue
                layers = ModelSpec.from_config(PUBLISHED[name]).layers
                scalings = {each.rope.scaling for each in layers if each.rope} - {None}
                assert {type(each).__name__ for each in scalings} == {rule}, name
                if factor:
                    (scaling,) = scalings
                    assert scaling.factor == float(factor.replace(",", "")), name
