"""The pictures of a published folder."""

from __future__ import annotations

from ropewalk.figures.attention_pictures import attention_maps
from ropewalk.figures.loss_pictures import loss_curves
from ropewalk.figures.picture import Picture
from ropewalk.figures.score_pictures import score_by_encoding, score_by_length
from ropewalk.lab.report.formats import column_title
from ropewalk.lab.report.pictures import by_length, by_multiple, curves, outcomes
from ropewalk.lab.results import Results

FORM = "png"


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
