"""The numbers that figures are drawn from, read from `results.json`."""

from __future__ import annotations

from typing import Any

from ropewalk.figures.plot_data import Curve, Outcome, finite, smoothed
from ropewalk.files import Facts
from ropewalk.lab.report.formats import bin_label
from ropewalk.lab.report.metrics import column_title, headline_metric


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
