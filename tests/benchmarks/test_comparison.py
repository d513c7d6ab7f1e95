"""The comparison with other libraries measures what its page says.

These fail if the script no longer runs, if an error of known size is measured as another, if a row
of another environment replaces one that is there, and if the page quotes other numbers than the
committed file has.
"""

import json
import re

import pytest
import torch
from scripts import ROOT, load_scripts

comparison, far_ropes, scores = load_scripts("benchmarks", "comparison", "far_ropes", "scores")
RESULTS = ROOT / "benchmarks" / "results" / "comparison.json"


def test_the_script_runs_to_the_end(run_script):
    rows = {row["name"]: row for row in run_script(comparison, "--smoke")["rows"]}
    ours = rows["ropewalk"]
    assert max(ours["cos_sin_worst"].values()) < 1e-7
    assert ours["packed_worst"] == 0
    assert ours["bfloat16_worst"]["module_float32"] == ours["bfloat16_worst"]["module_bfloat16"]
    assert 1e-7 < rows["float64 product"]["cos_sin_worst"][str(2**31)] < 1e-6
    if "transformers, Llama" in rows:
        theirs = rows["transformers, Llama"]
        assert 0.1 < theirs["cos_sin_worst"]["10000000"] < 2
        assert theirs["bfloat16_worst"]["module_bfloat16"] > 0.1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_an_error_of_known_size_is_measured(pairing):
    def off(x, positions):
        tables = comparison.exact(comparison.exact_frequencies(comparison.THETA), positions)
        return far_ropes.rotated(x.double(), *tables, pairing) * 1.25

    assert comparison.bfloat16_error(off, pairing) == pytest.approx(0.25)


def test_rows_of_another_environment_are_added_and_none_replaced():
    facts = {"command": "c", "commit": "d", "started": "e", "versions": {"torchtune": "1"}}
    first = {"rows": [{"name": "ropewalk", "rules": 1}]}
    later = {**facts, "rows": [{"name": "ropewalk", "rules": 2}, {"name": "torchtune"}]}
    both = comparison.joined(first, later)
    assert both["rows"] == [{"name": "ropewalk", "rules": 1}, {"name": "torchtune"}]
    assert both["added"] == [{**facts, "rows": ["torchtune"]}]


def test_the_page_quotes_the_committed_numbers():
    rows = {row["name"]: row for row in json.loads(RESULTS.read_text("utf-8"))["rows"]}
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    names = ["ropewalk", "transformers, Llama", "rotary-embedding-torch", "x-transformers"]
    names.append("torchtune")

    def quoted(head: str) -> list[str]:
        (line,) = re.findall(rf"^\| {head} \| (.*) \|$", page, re.MULTILINE)
        return line.split(" | ")[: len(names)]

    heads = {
        "131072": r"\[error of cos and sin\]\(#exact-angles\) at 131,072",
        "10000000": "at 10 million",
        "2147483648": r"at 2\^31",
        "module_float32": r"\[error of rotated bfloat16 q\]\(#bfloat16\) near 4,000",
        "module_bfloat16": r"the same after `module\.bfloat16\(\)`",
    }
    for key, head in heads.items():
        for name, cell in zip(names, quoted(head), strict=True):
            numbers = rows[name]["bfloat16_worst" if key.startswith("m") else "cos_sin_worst"]
            if key not in numbers:
                assert cell == "not measured: table from 0"
            else:
                assert float(f"{numbers[key]:.0e}") == float(cell), (key, name)
    rules = [len(rows[name]["rules"]) for name in names]
    assert rules == [7, 6, 2, 2, 1]
    assert all(row["packed_worst"] == 0 for row in rows.values())


def test_an_error_of_known_size_in_scores_is_measured(run_script, monkeypatch):
    """Keys and queries that are 1.1 times too long make scores off by 21 % of their deviation."""
    right = far_ropes.float64_product(scores.THETA)
    long = far_ropes.Rope(right.tables, lambda *x: right.rotate(*x) * 1.1, right.pairing)
    assert scores.errors(long, 4096, 16, torch.float32)["rms"] == pytest.approx(0.21, rel=0.1)
    monkeypatch.setattr(scores, "LENGTHS", (4_096, 10_000_000))
    rows = {row["name"]: row for row in run_script(scores, "--smoke")["rows"]}
    assert rows["ropewalk"]["4096"]["rms"] > 1e-4  # the last of both dtypes, bfloat16
    assert rows["torch, angles in float64"]["10000000"]["worst"] < 1e-5
