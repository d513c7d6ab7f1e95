"""The numbers on the pages are those of the committed results.

These fail if a table was edited by hand, if results were replaced without it, or if a number in the
prose differs from the results.
"""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLES = runpy.run_path(str(ROOT / "docs" / "tables.py"))


def results(path: str):
    return json.loads((ROOT / path / "results.json").read_text("utf-8"))


def text(name: str) -> str:
    """Return a page as one line."""
    return " ".join((ROOT / "docs" / f"{name}.md").read_text("utf-8").split())


@pytest.mark.parametrize("page", TABLES["PAGES"], ids=lambda page: page.stem)
def test_tables_are_those_of_the_results(page):
    assert "<!-- table:" in page.read_text("utf-8")
    assert TABLES["written"](page) == page.read_text("utf-8")


def test_the_verdict_that_is_explained_is_that_of_the_results():
    rows = {row["name"]: row for row in results("results/multi30k-cpu")["encodings"]}
    found = rows["learned"]["summary"]["test_2016_flickr"]["versus_first"]
    low, high, difference = (
        f"{found[key]:.1f}".replace("-", "−") for key in ("low", "high", "difference")
    )
    interval = f"with an interval of {low} to {high} but p (Holm) = {found['p_holm']:.3f}"
    assert f"by {difference} BLEU, {interval}" in text("compare-encodings")
    assert f"(±{found['detectable']:.1f} BLEU for `learned` on Multi30k)" in text(
        "compare-encodings"
    )
    assert found["verdict"] == "no difference shown"


def test_scores_at_far_positions_are_those_of_the_results():
    rows = TABLES["_results"]("exactness")["rows"]
    score = {(row["name"], row["theta"], row["end"]): row["score"] for row in rows}
    float32 = [
        f"{score['transformers, Llama', 10_000.0, end]:.0e}" for end in (4096, 131_072, 10_000_000)
    ]
    assert float32 == ["1e-05", "4e-04", "3e-02"]
    page = text("precision")
    assert (
        "scores of size 0.09 by up to 0.03. Just below 4,096 the change is 1e-5, and just below "
        "131,072 it is 4e-4." in page
    )
    assert f"scores are off by {score['bfloat16 positions', 10_000.0, 4096]:.2f} already" in page


def test_the_gain_of_flex_attention_is_that_of_the_results():
    rows = TABLES["_results"]("flex")["rows"]
    gains = sorted(
        row["seconds"]["flex"] / row["seconds"]["compiled blocks"]
        for row in rows
        if row["looks"] == "back"
    )
    assert f"took {gains[0]:.2f} to {gains[-1]:.2f} of the time" in text("performance")
