"""Figures from plain data: pictures of ropes and encodings, and the figures of reports.

The public functions take plain numbers, or anything that numpy reads, and return a `Picture` that
notebooks show. They need matplotlib: pip install 'ropewalk[lab]'.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.figures.encodings import bias_by_distance, position_similarity, position_vectors
    from ropewalk.figures.errors import angle_error
    from ropewalk.figures.picture import Picture
    from ropewalk.figures.rotation import corkscrew, cos_sin_tables, pair_planes
    from ropewalk.figures.scores import moved_together, score_by_distance
    from ropewalk.figures.wavelengths import frequency_usage, wavelengths_by_pair

_HOMES = {
    "Picture": "picture",
    "angle_error": "errors",
    "bias_by_distance": "encodings",
    "corkscrew": "rotation",
    "cos_sin_tables": "rotation",
    "frequency_usage": "wavelengths",
    "moved_together": "scores",
    "pair_planes": "rotation",
    "position_similarity": "encodings",
    "position_vectors": "encodings",
    "score_by_distance": "scores",
    "wavelengths_by_pair": "wavelengths",
}

__all__ = [
    "Picture",
    "angle_error",
    "bias_by_distance",
    "corkscrew",
    "cos_sin_tables",
    "frequency_usage",
    "moved_together",
    "pair_planes",
    "position_similarity",
    "position_vectors",
    "score_by_distance",
    "wavelengths_by_pair",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk.figures' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ropewalk.figures.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
