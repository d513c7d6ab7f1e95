"""The numbers that figures are drawn from, read from `results.json`.

The pictures of a results folder, from its numbers.
"""

from __future__ import annotations

from typing import Any

from ropewalk.figures.attention_pictures import attention_maps
from ropewalk.figures.loss_pictures import loss_curves
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import Curve, Outcome, finite, smoothed
from ropewalk.figures.score_pictures import score_by_encoding, score_by_length
from ropewalk.files import Facts
from ropewalk.lab.report.formats import (
    bin_label,
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)


def outcomes(results: Facts, split: str) -> dict[str, Outcome]:
    """Return each encoding's score on a split, and its tested difference from the first."""
    key, found = headline_metric(results)["key"], {}
    for row in results["encodings"]:
        score, versus = row["summary"][split][key], row["summary"][split].get("versus_first")
        difference = versus and (versus["difference"], versus["low"], versus["high"])
        found[row["name"]] = Outcome(tuple(score["values"]), score["mean"], difference)
    return found


def curves(results: Facts, kind: str) -> dict[str, list[Curve]]:
    """Return loss curves by steps; `kind` is "training" (smoothed) or "validation"."""
    found = {}
    for row in results["encodings"]:
        found[row["name"]] = [_curve(cell, kind) for cell in row["cells"]]
    return found


def by_length(results: Facts, split: str) -> tuple[list[str], dict[str, list[list[float]]]]:
    """Return the labels of a split's length bins, and BLEU as encoding -> seed -> bin."""
    scores = {
        row["name"]: [
            [bin_["bleu"] for bin_ in cell["scores"][split]["by_length"]]
            for cell in row["cells"]
            if "bleu" in (cell["scores"].get(split) or {})
        ]
        for row in results["encodings"]
    }
    return [bin_label(bin_) for bin_ in results["length_bins"][split]], scores


def by_multiple(results: Facts) -> dict[str, Any]:
    """Return the headline score at each scored length, as arguments of `score_by_length`."""
    metric, of = headline_metric(results), results["lengths"]["of"]
    scores = {
        row["name"]: [
            [cell["scores"][split].get(metric["key"]) for split in of] for cell in row["cells"]
        ]
        for row in results["encodings"]
    }
    return {
        "bins": [f"{length:,}" for length in of.values()],
        "scores": scores,
        "x_title": results["lengths"]["unit"],
        "y_title": column_title(metric),
        "logarithmic": metric["key"] == "perplexity",
    }


def _curve(cell: Facts, kind: str) -> Curve:
    points = [point for point in cell[kind] if point["loss"] is not None]
    curve = finite(
        Curve(
            cell["seed"],
            tuple(point["step"] for point in points),
            tuple(point["loss"] for point in points),
            cell["status"] == "diverged",
        )
    )
    # 1/25 of the curve: smooths the noise of batches, and hides no change of direction.
    return smoothed(curve, len(curve.x) // 25 | 1) if kind == "training" else curve


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
