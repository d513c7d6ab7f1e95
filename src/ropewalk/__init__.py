"""Rotary position embeddings (RoPE): exact, fast, in every form that published models use."""

from ropewalk.rotary import (
    LayerSpec,
    LearnedRotaryEmbedding,
    ModelSpec,
    QueryTemperature,
    RotaryEmbedding,
    RotarySpec,
    XPosEmbedding,
    axes,
    interop,
    positions,
    rerotate,
    rotate,
    scaling,
)

__version__ = "0.1.0"

__all__ = [
    "LayerSpec",
    "LearnedRotaryEmbedding",
    "ModelSpec",
    "QueryTemperature",
    "RotaryEmbedding",
    "RotarySpec",
    "XPosEmbedding",
    "__version__",
    "axes",
    "interop",
    "positions",
    "rerotate",
    "rotate",
    "scaling",
]
