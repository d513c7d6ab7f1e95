"""Tables of a sweep: every trial, the choice, and how much tuning changes a difference."""

from types import SimpleNamespace

import pytest

from ropewalk.lab.report.tables import how_tuned, is_tuned, trials_tables
from ropewalk.lab.results import CellResults, DecodingTrial, EncodingResults, Results, Trial


def row(name, losses, chosen, decodings=None, seeds=2, **settings):
    """A row with the fields that are needed here."""
    settings["learning_rate"] = chosen
    if decodings:
        settings["length_penalty"] = max(decodings, key=decodings.get)
    return EncodingResults.model_construct(
        name=name,
        cells=tuple(CellResults.model_construct(seed=seed) for seed in range(seeds)),
        settings=settings,
        trials=tuple(
            Trial(settings={"learning_rate": rate}, seed=1, status="", validation_loss=loss)
            for rate, loss in zip((0.001, 0.002, 0.004), losses, strict=True)
        ),
        decoding_trials=tuple(
            DecodingTrial(
                settings={"length_penalty": k}, bleu=(v, v), mean_bleu=v, mean_brevity_penalty=0.98
            )
            for k, v in (decodings or {}).items()
        ),
    )


def results(*rows, **sweep):
    return Results.model_construct(
        task="translation",
        config=SimpleNamespace(sweep={"learning_rate": [0.001, 0.002, 0.004], **sweep}),
        encodings=rows,
    )


LOSSES, PENALTIES = (3.0, 2.0, 2.5), {0.6: 39.0, 1.0: 40.25, 1.4: 40.0}


def texts(table):
    return [[cell.text for cell in line] for line in table.cells()]


def test_each_trial_stands_in_the_table_and_what_tuning_changes():
    (table,) = trials_tables(
        results(row("a", LOSSES, 0.002), row("b", (1.5, 1.9, None), 0.001))
    ).values()
    assert table.columns[4:6] == ["chosen", "difference from a, both with learning_rate=0.002"]
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
    (table,) = trials_tables(results(row("a", LOSSES, 0.002), row("b", losses, 0.001))).values()
    assert texts(table)[1][-3:] == gaps


def test_one_encoding_has_no_gap_and_decoding_shows_score_and_brevity_penalty():
    training, decoding = trials_tables(results(row("a", LOSSES, 0.002, PENALTIES))).values()
    assert training.columns[-1] == "chosen"
    assert texts(decoding) == [
        ["a", "39.00 (0.980)", "40.25 (0.980)", "40.00 (0.980)", "length_penalty=1.0"]
    ]


def test_a_choice_at_an_end_is_said_where_a_better_value_may_lie_beyond():
    """Fails if nothing warns that the best value is at an end of the grid; or if a better one is
    suggested beyond length_penalty=0, or beyond a grid of two.
    """
    rows = [row("a", LOSSES, 0.002, PENALTIES), row("b", (3.0, 2.0, 1.5), 0.004, PENALTIES)]
    said = how_tuned(results(*rows, length_penalty=[0.6, 1.0, 1.4]))
    assert said.endswith(
        "For `b`, the chosen learning_rate is at an end of the range that was tried, 0.001 to "
        "0.004: a better value may lie beyond it."
    )
    assert said.count("at an end") == 1
    for grid in ([0.0, 1.0, 1.4], [1.0, 1.4]):
        penalties = dict(zip(grid, (41.0, 40.0, 39.0), strict=False))
        least = row("a", LOSSES, 0.002, penalties)
        assert "at an end" not in how_tuned(results(least, length_penalty=grid))


def test_a_swept_size_is_said_to_be_unequal():
    said = how_tuned(results(row("a", LOSSES, 0.002, width=64), width=[32, 64]))
    assert "Encodings that differ in the chosen width also differ in size or training" in said


def test_the_seeds_of_a_choice_are_counted_and_not_those_of_the_row():
    given = row("a", LOSSES, 0.002, PENALTIES, seeds=3)
    said = how_tuned(results(given, length_penalty=[0.6, 1.0, 1.4]))
    assert "the mean BLEU of 2 seeds" in said


def test_results_without_a_sweep_say_nothing():
    plain = results(EncodingResults.model_construct(name="a"))
    assert not is_tuned(plain)
    assert trials_tables(plain) == {}
