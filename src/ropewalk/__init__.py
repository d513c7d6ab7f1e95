"""Rotary position embeddings (RoPE): exact, fast, in every form that published models use."""

from ropewalk.rotary import RotaryEmbedding, RotarySpec, axes, positions, rerotate, rotate, scaling

__version__ = "0.1.0"

__all__ = [
    "RotaryEmbedding",
    "RotarySpec",
    "__version__",
    "axes",
    "positions",
    "rerotate",
    "rotate",
    "scaling",
]
