"""The pictures of a results folder, and the numbers that they are drawn from."""

from __future__ import annotations

import math
from typing import Any, Literal

from ropewalk.figures.attention_pictures import attention_maps
from ropewalk.figures.loss_pictures import loss_curves
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import Curve, Outcome, smoothed
from ropewalk.figures.score_pictures import score_by_encoding, score_by_length
from ropewalk.lab.report.formats import bin_label, column_title
from ropewalk.lab.results import CellResults, Results

FORM = "png"
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


def pictures_of(results: Results) -> dict[str, Picture]:
    """Return the pictures of published results by name; drawing them comes later.

    Attention is not among them unless the weights of all encodings that have a model are known.
    """
    losses = loss_curves(curves(results, "training"), curves(results, "validation"))
    pictures = score_pictures(results) | {"loss": losses}
    rows = results.encodings
    maps = {row.name: row.attention.weights for row in rows if row.attention is not None}
    if maps and all(row.attention is not None or row.has_diverged for row in rows):
        pictures["attention"] = attention_maps(maps)
    return pictures


def score_pictures(results: Results) -> dict[str, Picture]:
    """Return the pictures of scores by name."""
    split = results.splits[0]
    if results.is_translation:
        return {
            "bleu": score_by_encoding(outcomes(results, split)),
            "bleu-by-length": score_by_length(*by_length(results, split)),
        }
    metric, tested = results.headline_metric, results.tested
    other, title = tested.name if tested != metric else "", column_title(metric, split)
    pictures = {"score": score_by_encoding(outcomes(results, split), title, other)}
    if len(results.splits) > 1:
        pictures["score-by-length"] = score_by_length(**by_multiple(results))
    return pictures
