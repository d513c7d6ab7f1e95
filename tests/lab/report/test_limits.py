"""What a report says of what its numbers do not show.

These fail if a reader could take short outputs for wrong ones, or untrained parameters for trained.
"""

from __future__ import annotations

from synthetic_run import results

import ropewalk.lab.report.limits as module
from ropewalk.lab.report.limits import limits

SHORT = "On `test`, outputs are much shorter than the references"


def test_short_outputs_are_named_if_every_model_has_them(monkeypatch):
    facts = results(("sinusoidal", "learned"), diverged=False)
    assert SHORT not in " ".join(limits(facts))
    penalties = {
        id(cell["scores"]["test"]): 0.4 + place / 100
        for place, cell in enumerate(cell for row in facts["encodings"] for cell in row["cells"])
    }
    monkeypatch.setattr(module, "brevity_penalty", lambda score: penalties.get(id(score), 1.0))
    assert f"{SHORT}: the brevity penalty multiplies" in " ".join(limits(facts))
    assert "by a factor between 0.40 and 0.43." in " ".join(limits(facts))
    penalties[next(iter(penalties))] = 0.8
    assert SHORT not in " ".join(limits(facts))


def test_untrained_buckets_of_t5_are_named():
    facts = results(("sinusoidal", "t5(buckets=32, distance=128)"), diverged=False)
    facts["task"] = "causal-lm"
    for trained, longest, first in ((64, 512, 67), (512, 2048, None), (100, 113, None)):
        facts["lengths"] = {"trained": trained, "of": {"x1": trained, "x4": longest}}
        said = " ".join(limits(facts))
        if first is None:
            assert "buckets" not in said
        else:
            assert f"buckets for distances from {first} on were not trained" in said
