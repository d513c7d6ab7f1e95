"""The mathematics of rotary position embeddings; needs torch and the standard library alone."""

from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import Pairing, RotarySpec

__all__ = ["Pairing", "RotaryEmbedding", "RotarySpec", "rotate"]
