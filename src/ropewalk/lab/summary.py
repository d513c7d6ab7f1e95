"""Means of scores and costs over the seeds of an encoding, and its extra parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ropewalk.files import Facts

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
