"""Figures from plain data: pictures of ropes and encodings, and the figures of reports.

The public functions take plain numbers, or anything that numpy reads, and return a `Picture` that
notebooks show. They need matplotlib, which the extra `lab` brings.
"""

from ropewalk.figures.attention_pictures import attention_maps, moved_together, score_by_distance
from ropewalk.figures.encoding_pictures import (
    bias_by_distance,
    position_similarity,
    position_vectors,
)
from ropewalk.figures.head_pictures import head_by_pair
from ropewalk.figures.loss_pictures import loss_by_context, loss_curves
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import Curve, Outcome
from ropewalk.figures.rope_pictures import corkscrew, cos_sin_tables, pair_planes
from ropewalk.figures.score_pictures import score_by_encoding, score_by_length
from ropewalk.figures.wavelength_pictures import angle_error, frequency_usage, wavelengths_by_pair

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
    "head_by_pair",
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
