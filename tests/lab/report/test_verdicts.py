"""What a comparison's numbers bear, judged from its results alone.

These fail when a score that rests on untrained parameters is tested, when the test against another
encoding is not that of the two, and when judging published results anew changes what they say.
"""

import pytest
import torch
from sentences import spoilt, text

from ropewalk.encodings import REGISTRY, trains_each_position
from ropewalk.lab.report.verdicts import check_against, with_verdicts
from ropewalk.lab.results import (
    CellResults,
    EncodingResults,
    Lengths,
    MetricFacts,
    Results,
    SplitScores,
    SplitSummary,
)
from ropewalk.lab.scoring.bleu import bleu_statistics, whole_statistics
from ropewalk.lab.scoring.significance import compare_with
from ropewalk.lab.tasks import CLASSES

ITEMS = 40


def scores(seed: int, right: float) -> dict:
    """Exact match of 40 answers, of which about this share is right."""
    generator = torch.Generator().manual_seed(seed)
    exact = (torch.rand(ITEMS, generator=generator) < right).long().tolist()
    statistics = {"exact": exact, "examples": [1] * ITEMS, "right": exact, "tokens": [1] * ITEMS}
    percent = 100 * sum(exact) / ITEMS
    return {"exact": percent, "tokens": percent, "statistics": statistics}


def results(*names: str) -> Results:
    """Results of copying with two seeds, as a comparison has them before they are judged."""
    rows = []
    for place, name in enumerate(names):
        own = [{s: scores(seed, 0.2 + 0.25 * place) for s in ("x1", "x2")} for seed in (1, 2)]
        cells = [
            CellResults.model_construct(
                seed=seed,
                scores={split: SplitScores.model_validate(each) for split, each in held.items()},
            )
            for seed, held in enumerate(own, start=1)
        ]
        summary = {
            split: SplitSummary.model_validate(
                {
                    key: {"mean": None, "values": [held[split][key] for held in own]}
                    for key in ("exact", "tokens")
                }
            )
            for split in ("x1", "x2")
        }
        row = EncodingResults.model_construct(name=name, cells=tuple(cells), summary=summary)
        rows.append(row)
    return Results.model_construct(
        task="copy",
        metrics=tuple(MetricFacts.model_validate(m.facts()) for m in CLASSES["copy"].metrics),
        splits=("x1", "x2"),
        lengths=Lengths(unit="items", trained=16, of={"x1": 16, "x2": 32}),
        encodings=tuple(rows),
    )


@pytest.mark.parametrize("name", ["learned(max_positions=40)", "tupe", "tupe(relative=True)+alibi"])
def test_no_score_rests_on_rows_that_training_never_reached(name):
    found = results("sinusoidal", "rotary", name)
    before = found.encodings[2]
    found = with_verdicts(found, ["rotary"])
    row = found.encodings[2]
    assert row.cells[0].scores["x1"] == before.cells[0].scores["x1"]
    assert row.summary["x1"].versus_first.p > 0
    for cell in row.cells:
        assert cell.scores["x2"].as_json().keys() == {"no_result"}
    assert "those beyond 16 items were not trained" in row.summary["x2"].no_result
    assert row.summary["x2"].spread("exact").as_json() == {"mean": None, "values": [None, None]}
    assert row.summary["x2"].versus_first is None
    assert row.summary["x2"].versus["rotary"] is None
    assert found.encodings[1].summary["x2"].versus_first.p > 0


def test_the_encodings_with_a_row_for_each_position_are_named():
    """Fails if a new one is added and its scores past the trained length pass for results."""
    assert {name for name in REGISTRY if trains_each_position(name)} == {"learned", "tupe"}
    assert trains_each_position("rotary+learned(max_positions=9)")
    assert not trains_each_position("rotary(learned=head)")


def test_each_encoding_is_tested_against_those_that_are_named():
    found = results("none", "sinusoidal", "rotary")
    found = with_verdicts(found, ["rotary", "none"])
    assert found.against == ("rotary",)  # the first is tested against in any case
    task = CLASSES["copy"]
    systems = [
        torch.stack([task.statistics_of(cell.scores["x1"].statistics) for cell in row.cells])
        for row in found.encodings
    ]
    score, margin = task.tested_metric.score, task.tested_metric.margin
    for reference, key in ((0, None), (2, "rotary")):
        alone_of = compare_with(reference, systems, score, margin=margin)
        for row, alone in zip(found.encodings, alone_of, strict=True):
            summary = row.summary["x1"]
            kept = summary.versus_first if key is None else summary.versus[key]
            assert (kept is None) == (alone is None)
            assert kept is None or kept.p_holm == alone.p_holm


def test_an_encoding_that_is_not_compared_is_refused():
    with pytest.raises(
        ValueError, match=r"against must be one of the compared encodings, .* got 'alibi'"
    ):
        check_against(["alibi"], ["none", "rotary"])
    with pytest.raises(ValueError, match="got 'alibi'"):
        with_verdicts(results("none", "rotary"), ["alibi"])


def test_what_results_keep_of_bleu_is_all_that_its_test_needs():
    references = [*text(30), "Ein Wort", "Ja"]
    hypotheses = [*spoilt(references[:30], 0.3, 1), "Ein Wort", ""]
    whole, _ = bleu_statistics(hypotheses, references)
    columns = whole.t().tolist()
    assert torch.equal(whole, whole_statistics(columns[0], columns[1], columns[2:6]))
