"""The mathematics of rotary position embeddings; needs torch and the standard library alone."""

from ropewalk.rotary import axes, positions, scaling
from ropewalk.rotary.module import RotaryEmbedding, rerotate
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import Pairing, RotarySpec

__all__ = [
    "Pairing",
    "RotaryEmbedding",
    "RotarySpec",
    "axes",
    "positions",
    "rerotate",
    "rotate",
    "scaling",
]
