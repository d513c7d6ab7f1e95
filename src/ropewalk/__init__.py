"""Rotary position embeddings (RoPE): exact, fast, in every form that published models use.

Public names are imported on first use, each with only what it needs. They need torch, which takes a
second to import; commands that do not need it start sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk import axes, figures, interop, positions, scaling
    from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
    from ropewalk.rotary.learned import LearnedRotaryEmbedding
    from ropewalk.rotary.model_spec import ModelSpec
    from ropewalk.rotary.module import RotaryEmbedding, rerotate
    from ropewalk.rotary.rotate import rotate
    from ropewalk.rotary.spec import RotarySpec
    from ropewalk.rotary.xpos import XPosEmbedding
    from ropewalk.tools import patch

__version__ = "0.1.0"

_MODULES = ("axes", "figures", "interop", "positions", "scaling", "testing", "tools")
_HOMES = {  # of the other public names
    "LayerSpec": "rotary.layer_spec",
    "LearnedRotaryEmbedding": "rotary.learned",
    "ModelSpec": "rotary.model_spec",
    "QueryTemperature": "rotary.layer_spec",
    "RotaryEmbedding": "rotary.module",
    "RotarySpec": "rotary.spec",
    "XPosEmbedding": "rotary.xpos",
    "patch": "tools",
    "rerotate": "rotary.module",
    "rotate": "rotary.rotate",
}

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
    "figures",
    "interop",
    "patch",
    "positions",
    "rerotate",
    "rotate",
    "scaling",
    "testing",
    "tools",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"ropewalk.{name}")
    value = globals()[name] = getattr(import_module(f"ropewalk.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
