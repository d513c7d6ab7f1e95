"""Figures from plain data: pictures of ropes and encodings, and the figures of reports.

The public functions take plain numbers, or anything that numpy reads, and return a `Picture` that
notebooks show. They need matplotlib: pip install 'ropewalk[lab]'.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.figures.attention import attention_maps
    from ropewalk.figures.comparison import score_by_encoding, score_by_length
    from ropewalk.figures.data import Curve, Outcome
    from ropewalk.figures.encodings import bias_by_distance, position_similarity, position_vectors
    from ropewalk.figures.errors import angle_error
    from ropewalk.figures.losses import loss_by_context
    from ropewalk.figures.picture import Picture
    from ropewalk.figures.rotation import corkscrew, cos_sin_tables, pair_planes
    from ropewalk.figures.scores import moved_together, score_by_distance
    from ropewalk.figures.training import loss_curves
    from ropewalk.figures.usage import frequency_usage
    from ropewalk.figures.wavelengths import wavelengths_by_pair

_HOMES = {
    "Curve": "data",
    "Outcome": "data",
    "Picture": "picture",
    "angle_error": "errors",
    "attention_maps": "attention",
    "bias_by_distance": "encodings",
    "corkscrew": "rotation",
    "cos_sin_tables": "rotation",
    "frequency_usage": "usage",
    "loss_by_context": "losses",
    "loss_curves": "training",
    "moved_together": "scores",
    "pair_planes": "rotation",
    "position_similarity": "encodings",
    "position_vectors": "encodings",
    "score_by_distance": "scores",
    "score_by_encoding": "comparison",
    "score_by_length": "comparison",
    "wavelengths_by_pair": "wavelengths",
}

__all__ = [
    "Curve",
    "Outcome",
    "Picture",
    "angle_error",
    "attention_maps",
    "bias_by_distance",
    "corkscrew",
    "cos_sin_tables",
    "frequency_usage",
    "loss_by_context",
    "loss_curves",
    "moved_together",
    "pair_planes",
    "position_similarity",
    "position_vectors",
    "score_by_distance",
    "score_by_encoding",
    "score_by_length",
    "wavelengths_by_pair",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk.figures' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ropewalk.figures.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
