"""README tells a true story: its port is found as it says, and its numbers are those measured.

These fail if README grows above 150 lines, if `verify` prints other lines about the port than
README shows, or if a share that README or docs/do-i-need-it.md states is not the one measured.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from published import FOLDER, published_spec

from ropewalk import RotaryEmbedding

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
STORY = README.partition("\n## A port that looks right\n")[2].partition("\n## ")[0]
(PORT,) = re.findall(r"```python\n(.*?)```", STORY, re.DOTALL)
(FAULTS,) = re.findall(r"```text\n(.*?)```", STORY, re.DOTALL)
MODEL = "llama-3.1-8b-instruct"


def test_it_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.slow
def test_verify_finds_the_port_as_shown(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_port", raising=False)  # other pages have one too
    Path("my_port.py").write_text(PORT, encoding="utf-8")
    shutil.copyfile(FOLDER / f"{MODEL}.json", "config.json")
    (words,) = re.findall(r"`ropewalk (verify [^`]+)`", STORY)
    status, out, _ = command(*words.split())
    assert status == 1
    lines = out.splitlines()
    wrong = [i for i, line in enumerate(lines) if line.startswith("FAULT")]
    checks = [line for line in lines if re.match(r"(ok|FAULT|note|-) ", line)]
    assert f"makes {len(checks)} checks. Two of them" in STORY
    shown = [line for i in wrong for line in lines[i : i + 2]]
    assert shown == FAULTS.splitlines()


def test_scores_of_the_port_are_off_as_stated():
    """Root mean square of 4,096 scores of random q and k, whose standard deviation is 1."""
    namespace: dict[str, object] = {}
    exec(PORT, namespace)
    rope = RotaryEmbedding(published_spec(MODEL).layers[0].rope)
    q, k = torch.randn(2, 1, 4096, 1, 128, generator=torch.Generator().manual_seed(0)) / 128**0.25
    found = {}
    for distance in (16, 4096):
        at = torch.tensor([distance])
        ported_q, _ = namespace["apply_rope"](q, q, at)  # the key, at position 0, stays as it is
        right_q = rope.rotate(q, at)
        found[distance] = ((ported_q - right_q) * k).sum(-1).square().mean().sqrt().item()
    near, far = re.findall(r"by ([\d.]+) %", " ".join(STORY.split()))
    assert f"{100 * found[16]:.1f}" == near
    assert f"{100 * found[4096]:.0f}" == far


def test_what_rounding_does_is_as_measured():
    """docs/tables.py writes the table; these are the numbers in sentences."""
    results = json.loads((ROOT / "benchmarks" / "results" / "scores.json").read_text("utf-8"))
    rows = {(row["name"], row["dtype"]): row for row in results["rows"]}
    others = ("transformers", "rotary-embedding-torch", "x-transformers")
    float32 = [rows[name, "float32"]["32768"] for name in others]
    page = " ".join((ROOT / "docs" / "do-i-need-it.md").read_text("utf-8").split())
    (rms,) = {f"{100 * each['rms']:.2f} %" for each in float32}
    (worst,) = {f"{100 * each['worst']:.2f} %" for each in float32}
    assert f"moves scores by {rms} of their standard deviation" in " ".join(README.split())
    assert f"scores by {rms} of their standard deviation" in page
    assert results["heads"] * results["window"] == 4096
    assert f"the worst of 4,096 moved by {worst}" in page
    ours, theirs = (
        rows[name, "bfloat16"]["131072"]["rms"]
        for name in ("ropewalk", "transformers, loaded in bfloat16")
    )
    assert f"moves scores by {100 * ours:.2f} % of the {100 * theirs:.2f} %" in page
