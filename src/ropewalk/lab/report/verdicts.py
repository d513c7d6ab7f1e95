"""What summarizes the cells of a comparison: means, and verdicts on differences.

A verdict says whether a difference is statistically shown. Verdicts follow from a run's results
alone, so that published results can be tested again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.encodings import trains_each_position
from ropewalk.files import Facts
from ropewalk.lab.results import (
    EncodingResults,
    MetricFacts,
    Results,
    SplitScores,
    Spread,
    TranslationCorpus,
    Verdict,
)
from ropewalk.lab.scoring.significance import by_document, compare_with
from ropewalk.lab.tasks import CLASSES

COSTS = ("validation_loss", "tokens_per_s", "peak_memory_bytes")


def summarize(rows: Sequence[Facts], splits: Collection[str], keys: Collection[str]) -> None:
    """Compute each row's means of scores (under these keys) and costs, and extra parameters."""
    leanest = min(row["parameters"] for row in rows)
    for row in rows:
        cells = row["cells"]
        row["summary"] = {}
        for split in splits:
            scores = [cell["scores"][split] for cell in cells]
            summary = {key: spread([of_cell.get(key) for of_cell in scores]) for key in keys}
            reasons = [of_cell["no_result"] for of_cell in scores if "no_result" in of_cell]
            row["summary"][split] = summary | ({"no_result": reasons[0]} if reasons else {})
        for name in COSTS:
            row[name] = spread([cell[name] for cell in cells])
        row["extra_parameters"] = row["parameters"] - leanest


def spread(values: list[float | None]) -> Facts:
    """Return all values and their mean, which is None if one is missing (a diverged cell)."""
    known = [value for value in values if value is not None]
    mean = round(fmean(known), 5) if len(known) == len(values) else None
    return {"mean": mean, "values": values}


def check_against(against: Sequence[str], encodings: Sequence[str]) -> None:
    """Raise ValueError unless each name in `against` is a compared encoding."""
    for name in against:
        if name not in encodings:
            raise ValueError(
                f"against must be one of the compared encodings, "
                f"{', '.join(encodings)}, got {shown(name)}"
            )


def with_verdicts(results: Results, against: Sequence[str] = ()) -> Results:
    """Return results in which every encoding is tested against the first one and those named.

    Each encoding's summary of a split gets `versus_first`, and in `versus` an entry for each name
    in `against`. Scores that depend on untrained parameters are removed first. An encoding is not
    tested at all if it lacks a seed that another encoding has. It is not tested on a split where
    one of its seeds has no score.

    Raises:
        ValueError: a name in `against` is not an encoding of these results.
    """
    names = [row.name for row in results.encodings]
    against = [name for name in dict.fromkeys(against) if name != names[0]]
    check_against(against, names)
    rows = [
        _without_scores(row, _beyond_training(results), results.metrics)
        if trains_each_position(row.name)
        else row
        for row in results.encodings
    ]
    results = results.with_changes(encodings=tuple(rows))
    summaries = [dict(row.summary) for row in rows]
    for split in results.splits:
        for reference in (names[0], *against):
            tests = tests_against(results, reference, split)
            for summary, test in zip(summaries, tests, strict=True):
                if reference == names[0]:
                    summary[split] = summary[split].with_changes(versus_first=test)
                else:
                    versus = {**summary[split].versus, reference: test}
                    summary[split] = summary[split].with_changes(versus=versus)
    judged = zip(results.encodings, summaries, strict=True)
    return results.with_changes(
        against=tuple(against),
        encodings=tuple(row.with_changes(summary=summary) for row, summary in judged),
    )


def tests_against(results: Results, reference: str, split: str) -> list[Verdict | None]:
    """Return the test of each encoding against the reference on a split; None without a test."""
    metric = CLASSES[results.task].tested_metric
    assert metric.score is not None
    place = [row.name for row in results.encodings].index(reference)
    systems = [_statistics(results, row, split) for row in results.encodings]
    tests = compare_with(
        place, systems, metric.score, margin=metric.margin, higher_is_better=metric.higher_is_better
    )
    return [None if test is None else Verdict(**asdict(test)) for test in tests]


def _statistics(results: Results, row: EncodingResults, split: str) -> Tensor | None:
    """Return the tensor (seeds, items, statistics) of an encoding; None if a score is missing.

    Items of one document are one item.
    """
    if row.name in results.lacking_seeds():
        return None
    statistics = [cell.scores[split].statistics for cell in row.cells]
    known = [columns for columns in statistics if columns is not None]
    if len(known) < len(statistics):  # leaving out a failed seed would favor the encoding
        return None
    found = torch.stack([CLASSES[results.task].statistics_of(columns) for columns in known])
    if (of := results.documents.get(split)) is None:
        return found
    return by_document(found, of)


def _without_scores(
    row: EncodingResults, reasons: Mapping[str, str], metrics: Sequence[MetricFacts]
) -> EncodingResults:
    """Return a row that has the reason instead of a score on each of these splits."""
    unknown = Spread(mean=None, values=(None,) * len(row.cells))
    summary, cells = dict(row.summary), list(row.cells)
    for split, reason in reasons.items():
        if summary[split].no_result is not None:  # the encoding itself rejected such positions
            continue
        spreads = {metric.key: unknown for metric in metrics}
        summary[split] = summary[split].with_changes(no_result=reason, **spreads)
        lost = {split: SplitScores.model_validate({"no_result": reason})}
        cells = [cell.with_changes(scores={**cell.scores, **lost}) for cell in cells]
    return row.with_changes(summary=summary, cells=tuple(cells))


def _beyond_training(results: Results) -> dict[str, str]:
    """Return splits where most items are longer than all in training, each with the reason why
    encodings that learn separate parameters for each position have no score.
    """
    why = "it has separate parameters for each position, and"
    if (lengths := results.lengths) is not None:
        why += f" those beyond {lengths.trained:,} {lengths.unit} were not trained"
        return {split: why for split, n in lengths.of.items() if n > lengths.trained}
    assert isinstance(results.corpus, TranslationCorpus)
    end = f"{results.corpus.longest_in_training.source:,}"
    why += f" most sentences are longer than the longest source in training ({end} tokens)"
    return {split: why for split, share in results.share_beyond_training.items() if share > 0.5}
