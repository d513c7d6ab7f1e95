"""The numbers that the pictures of results are drawn from."""

from __future__ import annotations

import math
from typing import Any, Literal

from ropewalk.figures.plot_data import Curve, Outcome, smoothed
from ropewalk.lab.report.formats import bin_label, column_title
from ropewalk.lab.results import CellResults, Results

Curves = Literal["training", "validation"]


def outcomes(results: Results, split: str) -> dict[str, Outcome]:
    """Return each encoding's score on a split, and its tested difference from the first."""
    outcome_of = {}
    for row in results.encodings:
        score = row.summary[split].spread(results.headline_metric.key)
        versus = row.summary[split].versus_first
        difference = None if versus is None else (versus.difference, versus.low, versus.high)
        outcome_of[row.name] = Outcome(score.values, score.mean, difference)
    return outcome_of


def curves(results: Results, kind: Curves) -> dict[str, list[Curve]]:
    """Return loss curves by steps; `kind` is "training" (smoothed) or "validation"."""
    return {row.name: [_curve(cell, kind) for cell in row.cells] for row in results.encodings}


def by_length(results: Results, split: str) -> tuple[list[str], dict[str, list[list[float]]]]:
    """Return the labels of a split's length bins, and BLEU as encoding -> seed -> bin."""
    scores = {
        row.name: [
            [bin_.bleu for bin_ in bins]
            for cell in row.cells
            if (bins := cell.scores[split].by_length) is not None
        ]
        for row in results.encodings
    }
    return [bin_label(bin_) for bin_ in results.length_bins[split]], scores


def by_multiple(results: Results) -> dict[str, Any]:
    """Return the headline score at each scored length, as arguments of `score_by_length`."""
    metric, lengths = results.headline_metric, results.lengths
    assert lengths is not None
    scores = {
        row.name: [
            [cell.scores[split].score(metric.key) for split in lengths.of] for cell in row.cells
        ]
        for row in results.encodings
    }
    return {
        "bins": [f"{length:,}" for length in lengths.of.values()],
        "scores": scores,
        "x_title": lengths.unit,
        "y_title": column_title(metric),
        "logarithmic": metric.key == "perplexity",
    }


def _curve(cell: CellResults, kind: Curves) -> Curve:
    points = cell.training if kind == "training" else cell.validation
    known = [(p.step, p.loss) for p in points if p.loss is not None and math.isfinite(p.loss)]
    steps, losses = zip(*known, strict=True) if known else ((), ())
    curve = Curve(cell.seed, steps, losses, cell.status == "diverged")
    # 1/25 of the curve: smooths the noise of batches, and hides no change of direction.
    return smoothed(curve, len(curve.x) // 25 | 1) if kind == "training" else curve
