"""What a report says of what its numbers do not show.

These fail if a reader could take short outputs for wrong ones, or untrained parameters for trained.
"""

from __future__ import annotations

from collections import Counter

from synthetic_run import results, typed

import ropewalk.lab.report.caveats as module
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, draw_examples
from ropewalk.lab.presets import TRAINED_SIZES
from ropewalk.lab.report.caveats import limits

SHORT = "On `test`, outputs are much shorter than the references"


def test_short_outputs_are_named_if_every_model_has_them(monkeypatch):
    facts = results(("sinusoidal", "learned"), diverged=False)
    assert SHORT not in " ".join(limits(typed(facts)))
    penalties = {
        cell["scores"]["test"]["bleu"]: 0.4 + place / 100
        for place, cell in enumerate(cell for row in facts["encodings"] for cell in row["cells"])
    }
    assert len(penalties) == 4
    monkeypatch.setattr(
        module, "brevity_penalty", lambda scores: penalties.get(scores.score("bleu"), 1.0)
    )
    assert f"{SHORT}: the brevity penalty multiplies" in " ".join(limits(typed(facts)))
    assert "by a factor between 0.40 and 0.43." in " ".join(limits(typed(facts)))
    penalties[next(iter(penalties))] = 0.8
    assert SHORT not in " ".join(limits(typed(facts)))


def test_untrained_buckets_of_t5_are_named():
    facts = results(("sinusoidal", "t5(buckets=32, distance=128)"), diverged=False)
    facts["task"] = "causal-lm"
    for trained, longest, first in ((64, 512, 67), (512, 2048, None), (100, 113, None)):
        facts["lengths"] = {
            "unit": "tokens",
            "trained": trained,
            "of": {"x1": trained, "x4": longest},
        }
        said = " ".join(limits(typed(facts)))
        if first is None:
            assert "buckets" not in said
        else:
            assert f"buckets for distances from {first} on were not trained" in said


def test_a_task_whose_answers_can_be_guessed_says_so():
    """Fails if scores near those of a constant answer pass for counting."""
    facts = results(("sinusoidal", "learned"), diverged=False)
    facts["lengths"] = {"unit": "items", "trained": 20, "of": {"x1": 20}}
    for task, said in (("copy", False), ("count", True)):
        facts["task"] = task
        assert ("a score of 20 % or less does not show" in " ".join(limits(typed(facts)))) is said


def test_the_chance_of_a_constant_answer_is_that_of_the_examples():
    """Fails if `chance` is not the share of the most frequent answer."""
    for name, task in SEQUENCE_TASKS.items():
        size = TRAINED_SIZES[name]
        drawn = draw_examples(name, split="test", lengths=(size, size), count=2000, seed=1)
        most = Counter(example.answer for example in drawn).most_common(1)[0][1]
        assert abs(most / 20 - task.chance) < 5  # pages say below 5 % that nothing was learned


def test_verdicts_near_the_limit_are_named():
    """Fails if the margin does not grow with the number of comparisons."""
    facts = results(("none", "sinusoidal", "learned"), diverged=False)
    for row in facts["encodings"][1:]:
        row["summary"]["test"]["versus_first"]["p_holm"] = 0.0550
        row["summary"]["long"]["versus_first"]["p_holm"] = 0.5
    assert "between 0.044 and 0.056 may change" in " ".join(limits(typed(facts)))
    del facts["encodings"][2]
    assert "may change" not in " ".join(limits(typed(facts)))
