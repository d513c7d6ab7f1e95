"""Reports of a sweep: every trial, the choice, and how much tuning changes a difference."""

from types import SimpleNamespace

import pytest

from ropewalk.lab.report import tuned
from ropewalk.lab.results import CellResults, DecodingTrial, EncodingResults, Results, Trial


def row(name, losses, chosen, decodings=None):
    rates = (0.001, 0.002, 0.004)
    trials = [
        {"settings": {"learning_rate": rate}, "seed": 1, "status": "", "validation_loss": loss}
        for rate, loss in zip(rates, losses, strict=True)
    ]
    facts = {"name": name, "seeds": [1, 2], "trials": trials}
    facts["settings"] = {"learning_rate": chosen}
    if decodings:
        facts["settings"]["length_penalty"] = max(decodings, key=lambda penalty: decodings[penalty])
        facts["decoding_trials"] = [
            {
                "settings": {"length_penalty": k},
                "bleu": [v, v],
                "mean_bleu": v,
                "mean_brevity_penalty": 0.98,
            }
            for k, v in decodings.items()
        ]
    return facts


def typed_row(facts):
    """A row with the fields that are needed here."""
    return EncodingResults.model_construct(
        name=facts["name"],
        cells=tuple(CellResults.model_construct(seed=seed) for seed in facts["seeds"]),
        settings=facts.get("settings"),
        trials=tuple(map(Trial.model_validate, facts.get("trials", ()))),
        decoding_trials=tuple(map(DecodingTrial.model_validate, facts.get("decoding_trials", ()))),
    )


def results(*rows, **sweep):
    return Results.model_construct(
        task="translation",
        config=SimpleNamespace(sweep={"learning_rate": [0.001, 0.002, 0.004], **sweep}),
        encodings=tuple(map(typed_row, rows)),
    )


def texts(table):
    return [[cell.main for cell in line] for line in table.rows]


def test_each_trial_stands_in_the_table_and_what_tuning_changes():
    table = tuned.training_trials(
        results(row("a", (3.0, 2.0, 2.5), 0.002), row("b", (1.5, 1.9, None), 0.001))
    )
    assert table.columns[4:6] == ("chosen", "difference from a, both with learning_rate=0.002")
    assert texts(table) == [
        ["a", "3.000", "2.000", "2.500", "learning_rate=0.002", "–", "–", "–"],
        [
            *("b", "1.500", "1.900", "diverged", "learning_rate=0.001"),
            *("−0.100", "−0.500", "−0.400"),
        ],
    ]


@pytest.mark.parametrize(
    ("losses", "gaps"),
    [((1.5, None, 2.0), ["diverged", "−0.500", "–"]), ((None, None, None), ["–", "–", "–"])],
)
def test_a_diverged_trial_has_no_gap(losses, gaps):
    table = tuned.training_trials(
        results(row("a", (3.0, 2.0, 2.5), 0.002), row("b", losses, 0.001))
    )
    assert texts(table)[1][-3:] == gaps


def test_one_encoding_has_no_gap():
    table = tuned.training_trials(results(row("a", (3.0, 2.0, 2.5), 0.002)))
    assert table.columns[-1] == "chosen"


def test_decoding_shows_score_and_brevity_penalty():
    given = row("a", (3.0, 2.0, 2.5), 0.002, {0.6: 39.0, 1.0: 40.25, 1.4: 40.0})
    table = tuned.decoding_trials(results(given, length_penalty=[0.6, 1.0, 1.4]))
    assert texts(table) == [
        ["a", "39.00 (0.980)", "40.25 (0.980)", "40.00 (0.980)", "length_penalty=1.0"]
    ]


def test_a_choice_at_an_end_is_said():
    """Fails if nothing warns that the best value is at an end of the grid."""
    inside = row("a", (3.0, 2.0, 2.5), 0.002, {0.6: 39.0, 1.0: 40.25, 1.4: 40.0})
    at_end = row("b", (3.0, 2.0, 1.5), 0.004, {0.6: 39.0, 1.0: 40.25, 1.4: 40.0})
    said = tuned.sentences(results(inside, at_end, length_penalty=[0.6, 1.0, 1.4]))
    ends = [sentence for sentence in said if "at an end" in sentence]
    assert ends == [
        "For `b`, the chosen learning_rate is at an end of the range that was tried, 0.001 to "
        "0.004: a better value may lie beyond it."
    ]


def test_no_end_is_said_of_what_has_no_value_below_nor_of_two_values():
    """Fails if a better value is suggested beyond length_penalty=0, or beyond a grid of two."""
    least = row("a", (3.0, 2.0, 2.5), 0.002, {0.0: 41.0, 1.0: 40.25, 1.4: 40.0})
    said = tuned.sentences(results(least, length_penalty=[0.0, 1.0, 1.4]))
    two = row("a", (3.0, 2.0, 2.5), 0.002, {1.0: 40.25, 1.4: 40.0})
    said += tuned.sentences(results(two, length_penalty=[1.0, 1.4]))
    assert not [sentence for sentence in said if "at an end" in sentence]


def test_a_swept_size_is_said_to_be_unequal():
    given = row("a", (3.0, 2.0, 2.5), 0.002)
    given["settings"]["width"] = 64
    said = " ".join(tuned.sentences(results(given, width=[32, 64])))
    assert "Encodings that differ in the chosen width also differ in size or training" in said


def test_the_seeds_of_a_choice_are_counted_and_not_those_of_the_row():
    given = row("a", (3.0, 2.0, 2.5), 0.002, {0.6: 39.0, 1.0: 40.25, 1.4: 40.0})
    given["seeds"].append(3)
    said = " ".join(tuned.sentences(results(given, length_penalty=[0.6, 1.0, 1.4])))
    assert "the mean BLEU of 2 seeds" in said


def test_results_without_a_sweep_say_nothing():
    plain = results({"name": "a", "seeds": []})
    assert not tuned.is_tuned(plain)
    assert tuned.training_trials(plain) is None
    assert tuned.decoding_trials(plain) is None
