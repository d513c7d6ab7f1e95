"""What the numbers of a comparison bear: which scores count, and which differences are shown.

All of it is formed from a run's results, so that published results can be judged anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.encodings import has_trained_rows
from ropewalk.files import Facts
from ropewalk.lab.report.metrics import metrics
from ropewalk.lab.report.seeds import lacking_seeds
from ropewalk.lab.scoring.significance import compare_with
from ropewalk.lab.tasks import CLASSES


def check_against(against: Sequence[str], encodings: Sequence[str]) -> None:
    """Raise ValueError unless each name in ``against`` is that of a compared encoding."""
    for name in against:
        if name not in encodings:
            raise ValueError(
                f"against must name one of the encodings that are compared, "
                f"{', '.join(encodings)}, got {shown(name)}"
            )


def add_verdicts(results: Facts, against: Sequence[str] = ()) -> None:
    """Test every encoding's scores against the first's, and against others by name.

    Each row's summary gets ``versus_first``, and ``versus`` with an entry for each name in
    ``against``. Scores that rest on parameters which training never reached are taken out before.
    An encoding that lacks a seed which another has is not tested until it has it.

    Raises:
        ValueError: a name in ``against`` is not that of an encoding of these results.
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
    """Form the statistics (Z, N, C) of an encoding; None unless it has a score of every seed."""
    if row["name"] in lacking_seeds(results):
        return None
    scores = [cell["scores"][split] for cell in row["cells"]]
    # Without one of its seeds a system would be judged by those that went well.
    if any("no_result" in each or "statistics" not in each for each in scores):
        return None
    return torch.stack([CLASSES[results["task"]].statistics_of(each) for each in scores])


def _drop_untrained(results: Facts) -> None:
    """Replace scores of encodings with a row for each position, where no row was trained."""
    for row in results["encodings"]:
        if not has_trained_rows(row["name"]):
            continue
        for split, reason in _beyond_training(results).items():
            summary = row["summary"][split]
            if "no_result" in summary:  # it may refuse such positions by itself
                continue
            summary["no_result"] = reason
            for cell in row["cells"]:
                cell["scores"][split] = {"no_result": reason}
            for metric in metrics(results):
                summary[metric["key"]] = {"mean": None, "values": [None] * len(row["cells"])}


def _beyond_training(results: Facts) -> dict[str, str]:
    """Say, of each split that is longer than training, why such an encoding has no score there."""
    why = "it has parameters for each position by itself, and training reached none beyond"
    if "lengths" in results:
        lengths = results["lengths"]
        end = f"{lengths['trained']:,} {lengths['unit']}"
        return {s: f"{why} {end}" for s, n in lengths["of"].items() if n > lengths["trained"]}
    end = f"{results['corpus']['longest_in_training']['source']:,} tokens of the source"
    shares = results.get("share_beyond_training", {})
    return {split: f"{why} {end}" for split, share in shares.items() if share > 0.5}
