"""The sentences of a report about its numbers, and about what they do not show.

These fail if it says "better" without a shown difference, ranks models that have not learned,
rounds a difference to 0, or if a reader could take short outputs for wrong ones, or untrained
parameters for trained.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from synthetic_run import results, typed

import ropewalk.lab.report.findings as module
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, draw_examples
from ropewalk.lab.presets import TRAINED_SIZES
from ropewalk.lab.report.findings import findings, headline, limits
from ropewalk.lab.report.tables import legend


@pytest.fixture
def facts():
    """Two encodings, the second of which is not shown to differ from the first."""
    return results(("sinusoidal", "learned"), diverged=False)


def test_the_headline_says_no_more_than_the_test(facts):
    versus = facts["encodings"][1]["summary"]["test"]["versus_first"]
    for verdict, said in (
        ("better", "On `test`, `learned` is better than `sinusoidal` (30.6 against 37.8 BLEU"),
        ("worse", "On `test`, `learned` is worse than `sinusoidal`"),
        ("equal", "On `test`, `learned` is equal to `sinusoidal` within 1 BLEU"),
        ("open", "On `test`, it is open whether `learned` differs from `sinusoidal`"),
    ):
        versus["verdict"] = verdict
        assert headline(typed(facts)).startswith(said)
    facts["encodings"][1]["summary"]["test"]["versus_first"] = None
    assert headline(typed(facts)).startswith(
        "On `test`, `learned` was not tested against `sinusoidal`"
    )


def test_the_legend_says_what_equal_and_open_mean(facts):
    assert "“Equal”: the interval lies within ±1 BLEU." in legend(typed(facts))
    for summary in facts["encodings"][1]["summary"].values():
        summary["versus_first"] = None
    assert "“Equal”" not in legend(typed(facts))


@pytest.mark.parametrize(("low", "beyond"), [(-30.0, False), (-40.0, True)])
def test_an_interval_below_the_lowest_score_is_named(facts, low, beyond):
    """Fails if only ends above 100 are noticed: 37.8 BLEU cannot fall by 40."""
    tested = facts["encodings"][1]["summary"]["test"]["versus_first"]
    facts["encodings"][1]["summary"]["long"]["versus_first"] = None
    facts["encodings"][1]["summary"]["test"]["versus_first"] = tested | {"low": low}
    assert ("may extend beyond possible scores" in legend(typed(facts))) is beyond


def test_models_that_have_not_learned_are_not_ranked(facts):
    for row in facts["encodings"]:
        bleu = row["summary"]["test"]["bleu"]
        bleu["mean"], bleu["values"] = bleu["mean"] / 20, [value / 20 for value in bleu["values"]]
    said = "On `test`, every model with every seed is below 5 BLEU after 400 steps"
    assert headline(typed(facts)).startswith(said)
    assert "`learned` is better" not in headline(typed(facts))
    facts["encodings"][1]["summary"]["test"]["bleu"] = {"mean": None, "values": [30.0, None]}
    assert "every model with every seed" not in headline(
        typed(facts)
    )  # one has, and another seed has no score


def test_a_small_difference_is_not_rounded_away(facts):
    versus = {"difference": 0.04, "low": 0.01, "high": 0.07, "p_holm": 0.01, "verdict": "better"}
    facts["encodings"][1]["summary"]["test"]["versus_first"] |= versus
    facts["encodings"][1]["summary"]["test"]["bleu"]["mean"] = 37.83
    assert "37.83 against 37.79 BLEU" in headline(typed(facts))
    assert "difference +0.04, 95 % interval +0.01 to +0.07, p = 0.010" in headline(typed(facts))


def test_several_verdicts_are_kept_apart():
    facts = results(("none", "sinusoidal", "rotary(theta=1e6)", "learned"), diverged=False)
    assert headline(typed(facts)) == (
        "Compared with `none` (27.9 BLEU on `test`, means of 2 seeds, 400 steps each), "
        "`sinusoidal` (+9.9) and `rotary(theta=1e6)` (+12.3) are better; `learned` (+2.7) is open."
    )
    assert "not against the others" in findings(typed(facts))[-1]


def test_where_it_did_not_win_is_said():
    facts = results(("sinusoidal", "rotary(theta=1e6)"), diverged=False)
    said = " ".join(findings(typed(facts)))
    assert (
        "If unrounded scores are compared without significance tests, `rotary(theta=1e6)` is "
        "better than `sinusoidal` in 10 of 10 measures of quality (validation loss, and the scores "
        "of each split and range of lengths)."
    ) in said
    for cell in facts["encodings"][1]["cells"]:
        cell["scores"]["test"]["by_length"][1]["bleu"] = 1.0
    said = " ".join(findings(typed(facts)))
    assert "worse in 1 (BLEU on `test` (9 words))." in said


def test_a_verdict_says_after_how_many_steps(facts):
    """Fails if a score comes without its steps, or the steps of a diverged run are counted."""
    assert "BLEU, means of 2 seeds, 400 steps each; difference" in headline(typed(facts))
    facts["encodings"][1]["cells"][0]["steps"] = 1_200
    assert "means of 2 seeds, 400 to 1,200 steps each; difference" in headline(typed(facts))
    facts["encodings"][1]["cells"][0]["status"] = "diverged"
    assert "means of 2 seeds, 400 steps each, 1 of 4 runs diverged; difference" in headline(
        typed(facts)
    )


def test_one_seed_is_said_to_be_one():
    facts = results(("sinusoidal", "rotary(theta=1e6)"), diverged=False)
    for row in facts["encodings"]:
        del row["cells"][1:]
    assert "one seed" in headline(typed(facts))
    assert findings(typed(facts))[-1].startswith("With one seed each")


def test_the_correction_counts_the_comparisons_of_each_split():
    """Fails if an encoding without a result on a split is counted among its comparisons."""
    facts = results(("none", "sinusoidal", "learned"), diverged=False)
    assert (
        "In tests against `none`, p is corrected (Holm) for 2 comparisons"
        in findings(typed(facts))[-1]
    )
    facts["splits"] = ["test", "far"]
    for row in facts["encodings"]:
        row["summary"]["far"] = copy.deepcopy(row["summary"]["test"])
        for cell in row["cells"]:
            cell["scores"]["far"] = cell["scores"]["test"]
    assert "for 2 comparisons on each split." in findings(typed(facts))[-1]
    facts["encodings"][2]["summary"]["far"]["versus_first"] = None
    counted = "for 2 comparisons on `test`, and for 1 comparison on `far`."
    assert counted in findings(typed(facts))[-1]


SHORT = "On `test`, outputs are much shorter than the references"


def test_short_outputs_are_named_if_every_model_has_them(facts, monkeypatch):
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


def test_a_task_whose_answers_can_be_guessed_says_so(facts):
    """Fails if scores near those of a constant answer pass for counting."""
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
