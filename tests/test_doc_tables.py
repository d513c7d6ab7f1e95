"""The numbers on the pages and in the README are those of the committed results.

These fail if a table was edited by hand, if results were replaced without it, or if a number in the
prose differs from the results.
"""

import json
import re
import runpy
from pathlib import Path

import pytest
from published_readme import with_excerpt

from ropewalk.lab.results import read_results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
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


def test_tables_of_the_readme_are_those_of_the_results():
    names = re.findall(r"<!-- result: (\S+) -->", README)
    assert names
    for name in names:
        assert with_excerpt(README, name, read_results(ROOT / name)) == README


def test_the_verdict_that_is_explained_is_that_of_the_results():
    rows = {row["name"]: row for row in results("results/multi30k-cpu")["encodings"]}
    found = rows["rotary"]["summary"]["test_2016_flickr"]["versus_first"]
    low, high, difference = (f"{found[key]:+.1f}" for key in ("low", "high", "difference"))
    interval = f"with an interval of {low} to {high} but p (Holm) = {found['p_holm']:.3f}"
    page = text("compare-encodings")
    assert f"by {difference} BLEU, {interval}" in page
    assert len(rows) - 1 == 7
    assert found["verdict"] == "open"


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


def test_what_the_page_says_of_frequency_usage_is_in_the_results():
    """Fails if the models are trained again and the prose stays."""
    page = text("frequency-usage")
    found = results("results/frequency-usage")["seeds"].values()
    heads = [head for each in found for layer in each["layers"] for head in layer["heads"]]
    position = [head for head in heads if head["kind"] == "position"]
    most = [round(100 * head["at_distance"]) for head in position]
    assert f"one distance gets {min(most)} to {max(most)} % of their attention" in page
    assert {head["distance"] for head in position} == {1, 2}
    costs = [{cost["fraction"]: cost for cost in each["costs"]} for each in found]
    rises = [round(each[0.25]["difference"], 2) for each in costs]
    assert f"the loss rises by {min(rises)} to {max(rises)}" in page
    halves = [each[0.5] for each in costs]
    assert f"by at most {max(round(abs(half['difference']), 4) for half in halves)}" in page
    assert sum(half["low"] > 0 or half["high"] < 0 for half in halves) == 1
    assert all(each[0]["loss"] > 2 * each[1]["loss"] for each in costs)
    first = next(iter(found))["layers"][0]["wavelengths"]
    slow = [place for place, wave in enumerate(first) if wave > 64]
    assert f"{len(slow) / len(first):.0%}".replace("%", " %") in page
    shares = []
    for layer in range(3):
        of = [h for each in found for h in each["layers"][layer]["q_norms"]]
        each_head = [sum(h[i] ** 2 for i in slow) / sum(n**2 for n in h) for h in of]
        shares.append(round(100 * sum(each_head) / len(each_head)))
    assert f"have {min(shares)} to {max(shares)} % of the squared norm of q" in page


def test_sentences_of_the_page_of_benchmarks_are_those_of_the_results():
    page = " ".join((ROOT / "benchmarks" / "README.md").read_text("utf-8").split())
    claims = TABLES["_results"]("exactness")["claims"]
    phrases = [
        f"- {c['claim']}: {c['measured']:.2g} (claimed: at most {c['limit']:g})" for c in claims
    ]
    models = TABLES["_results"]("training")["models"].values()
    reached = [[f"{each['reached']:.2f}" for each in m["targets"].values()] for m in models]
    phrases.append(f"base {' and '.join(reached[0])}, small {' and '.join(reached[1])}.")
    moves = [sorted(row["work_ms"]) for row in TABLES["_results"]("dragging")["rows"]]
    late = max(each[int(0.95 * (len(each) - 1))] for each in moves)
    phrases += [f"slowest needs {late:.1f} ms", f"{max(map(max, moves)):.0f} ms. All sliders"]
    cells = [[each.strip() for each in row.split("|")] for row in TABLES["rotation"]().splitlines()]
    prefill = [row for row in cells if row[1].startswith("prefill")]
    ratios = [row[5] for row in prefill]
    phrases.append(f"takes {min(ratios)} to {max(ratios)} times as long as copying them")
    assert [phrase for phrase in phrases if phrase not in page] == []
