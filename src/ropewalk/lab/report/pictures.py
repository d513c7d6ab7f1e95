"""The pictures of a results folder, from its numbers."""

from __future__ import annotations

from ropewalk.figures.attention_pictures import attention_maps
from ropewalk.figures.loss_pictures import loss_curves
from ropewalk.figures.picture import Picture
from ropewalk.figures.score_pictures import score_by_encoding, score_by_length
from ropewalk.files import Facts
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes
from ropewalk.lab.report.metrics import (
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)

FORM = "png"


def pictures_of(results: Facts) -> dict[str, Picture]:
    """Return the pictures of published results by name; drawing them comes later.

    Attention is not among them unless the weights of all encodings that have a model are known.
    """
    losses = loss_curves(curves(results, "training"), curves(results, "validation"))
    found = score_pictures(results) | {"loss": losses}
    rows = results["encodings"]
    maps = {row["name"]: row["attention"]["weights"] for row in rows if "attention" in row}
    if maps and all("attention" in row or _has_no_model(row) for row in rows):
        found["attention"] = attention_maps(maps)
    return found


def score_pictures(results: Facts) -> dict[str, Picture]:
    """Return the pictures of scores by name."""
    split = results["splits"][0]
    if is_translation(results):
        return {
            "bleu": score_by_encoding(outcomes(results, split)),
            "bleu-by-length": score_by_length(*by_length(results, split)),
        }
    metric, tested = headline_metric(results), tested_metric(results)
    other = tested["name"] if tested != metric else ""
    found = {
        "score": score_by_encoding(outcomes(results, split), column_title(metric, split), other)
    }
    if len(results["splits"]) > 1:
        found["score-by-length"] = score_by_length(**by_multiple(results))
    return found


def _has_no_model(row: Facts) -> bool:
    """Return whether there is no model to show attention of: the first seed's run diverged."""
    return bool(row["cells"][0]["status"] == "diverged")
