"""Rotary position embeddings (RoPE): exact, fast, in every form that published models use.

Public names are imported on first use, each with only what it needs. They need torch, which takes a
second to import; commands that do not need it start sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk import axes, figures, interop, positions, scaling, testing, tools
    from ropewalk.rotary import (
        LayerSpec,
        LearnedRotaryEmbedding,
        ModelSpec,
        QueryTemperature,
        RotaryEmbedding,
        RotarySpec,
        XPosEmbedding,
        rerotate,
    )
    from ropewalk.rotary.rotate import rotate
    from ropewalk.tools.patch import patch

__version__ = "0.1.0"

_MODULES = ("axes", "figures", "interop", "positions", "scaling", "testing", "tools")
_HOMES = {"patch": "tools", "rotate": "rotary.rotate"}  # the other names are those of rotary

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
    home = import_module(f"ropewalk.{_HOMES.get(name, 'rotary')}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
