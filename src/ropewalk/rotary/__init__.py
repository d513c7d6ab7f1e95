"""The mathematics of rotary position embeddings; needs only torch and the standard library."""

from ropewalk.rotary import axes, interop, positions, scaling
from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
from ropewalk.rotary.learned import LearnedRotaryEmbedding
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.module import RotaryEmbedding, rerotate
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import Pairing, RotarySpec
from ropewalk.rotary.xpos import XPosEmbedding

__all__ = [
    "LayerSpec",
    "LearnedRotaryEmbedding",
    "ModelSpec",
    "Pairing",
    "QueryTemperature",
    "RotaryEmbedding",
    "RotarySpec",
    "XPosEmbedding",
    "axes",
    "interop",
    "positions",
    "rerotate",
    "rotate",
    "scaling",
]
