"""Means of scores and costs over the seeds of an encoding, and its extra parameters.

Verdicts of a comparison: which scores count, and which differences are statistically shown.

Verdicts are computed from a run's results alone, so that published results can be tested again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.encodings import trains_each_position
from ropewalk.files import Facts
from ropewalk.lab.report.findings import lacking_seeds
from ropewalk.lab.report.formats import metrics
from ropewalk.lab.scoring.significance import compare_with
from ropewalk.lab.tasks import CLASSES

COSTS = ("validation_loss", "tokens_per_s", "peak_memory_bytes")


def summarize(rows: Sequence[Facts], splits: Collection[str], keys: Collection[str]) -> None:
    """Compute each row's means of scores (under these keys) and costs, and extra parameters."""
    leanest = min(row["parameters"] for row in rows)
    for row in rows:
        cells = row["cells"]
        row["summary"] = {
            split: _of_split([cell["scores"][split] for cell in cells], keys) for split in splits
        }
        for name in COSTS:
            row[name] = spread([cell[name] for cell in cells])
        row["extra_parameters"] = row["parameters"] - leanest


def spread(values: list[float | None]) -> Facts:
    """Return all values and their mean, which is None if one is missing (a diverged cell)."""
    known = [value for value in values if value is not None]
    mean = round(sum(known) / len(known), 5) if len(known) == len(values) else None
    return {"mean": mean, "values": values}


def _of_split(scores: Sequence[Facts], keys: Collection[str]) -> Facts:
    summary: Facts = {key: spread([each.get(key) for each in scores]) for key in keys}
    reasons = [each["no_result"] for each in scores if "no_result" in each]
    return summary | ({"no_result": reasons[0]} if reasons else {})


def check_against(against: Sequence[str], encodings: Sequence[str]) -> None:
    """Raise ValueError unless each name in `against` is a compared encoding."""
    for name in against:
        if name not in encodings:
            raise ValueError(
                f"against must be one of the compared encodings, "
                f"{', '.join(encodings)}, got {shown(name)}"
            )


def add_verdicts(results: Facts, against: Sequence[str] = ()) -> None:
    """Test every encoding against the first one and against those in `against`.

    In `results`, each encoding's summary of a split gets two new keys: `versus_first`, and
    `versus`, a dict with an entry for each name in `against`. Scores that depend on untrained
    parameters are removed first. An encoding is not tested at all if it lacks a seed that another
    encoding has. It is not tested on a split where one of its seeds has no score.

    Raises:
        ValueError: a name in `against` is not an encoding of these results.
    """
    against = [name for name in dict.fromkeys(against) if name != results["encodings"][0]["name"]]
    rows = results["encodings"]
    names = [row["name"] for row in rows]
    check_against(against, names)
    results["against"] = list(against)
    _drop_untrained(results)
    task = CLASSES[results["task"]]
    metric = task.tested_metric
    assert metric.score is not None
    for split in results["splits"]:
        systems = [_statistics(results, row, split) for row in rows]
        for place in (0, *map(names.index, against)):
            versus = compare_with(
                place,
                systems,
                metric.score,
                higher_is_better=metric.higher_is_better,
            )
            for row, each in zip(rows, versus, strict=True):
                facts, summary = None if each is None else asdict(each), row["summary"][split]
                if place == 0:
                    summary["versus_first"] = facts
                else:
                    summary.setdefault("versus", {})[names[place]] = facts


def _statistics(results: Facts, row: Facts, split: str) -> Tensor | None:
    """Return the tensor (seeds, items, statistics) of an encoding; None if a score is missing."""
    if row["name"] in lacking_seeds(results):
        return None
    scores = [cell["scores"][split] for cell in row["cells"]]
    # Leaving out a failed seed would favor the encoding.
    if any("no_result" in each or "statistics" not in each for each in scores):
        return None
    return torch.stack([CLASSES[results["task"]].statistics_of(each) for each in scores])


def _drop_untrained(results: Facts) -> None:
    """Remove scores on splits where most items are longer than all items in training.

    Only for encodings that learn separate parameters for each position.
    """
    for row in results["encodings"]:
        if not trains_each_position(row["name"]):
            continue
        for split, reason in _beyond_training(results).items():
            summary = row["summary"][split]
            if "no_result" in summary:  # the encoding itself rejected such positions
                continue
            summary["no_result"] = reason
            for cell in row["cells"]:
                cell["scores"][split] = {"no_result": reason}
            for metric in metrics(results):
                summary[metric["key"]] = {"mean": None, "values": [None] * len(row["cells"])}


def _beyond_training(results: Facts) -> dict[str, str]:
    """Return splits with untrained positions, each with the reason why there is no score."""
    why = "it has separate parameters for each position, and"
    if "lengths" in results:
        lengths = results["lengths"]
        end = f"{lengths['trained']:,} {lengths['unit']}"
        why += f" those beyond {end} were not trained"
        return {s: why for s, n in lengths["of"].items() if n > lengths["trained"]}
    end = f"{results['corpus']['longest_in_training']['source']:,}"
    shares = results.get("share_beyond_training", {})
    why += f" most sentences are longer than the longest source in training ({end} tokens)"
    return {split: why for split, share in shares.items() if share > 0.5}
