"""The mathematics of rotary position embeddings; needs only torch and the standard library.

Names are imported on first use, each with only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
    from ropewalk.rotary.learned import LearnedRotaryEmbedding
    from ropewalk.rotary.model_spec import ModelSpec
    from ropewalk.rotary.module import RotaryEmbedding, rerotate
    from ropewalk.rotary.spec import RotarySpec
    from ropewalk.rotary.xpos import XPosEmbedding

_HOMES = {
    "LayerSpec": "layer_spec",
    "LearnedRotaryEmbedding": "learned",
    "ModelSpec": "model_spec",
    "QueryTemperature": "layer_spec",
    "RotaryEmbedding": "module",
    "RotarySpec": "spec",
    "XPosEmbedding": "xpos",
    "rerotate": "module",
}

__all__ = [
    "LayerSpec",
    "LearnedRotaryEmbedding",
    "ModelSpec",
    "QueryTemperature",
    "RotaryEmbedding",
    "RotarySpec",
    "XPosEmbedding",
    "rerotate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ropewalk.rotary' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"ropewalk.rotary.{_HOMES[name]}"), name)
    return value
