"""Small configs of every class of diffusers with a rope."""

from __future__ import annotations

from typing import Any

from ropewalk.rotary.config.diffusers_types import MODELS, Key


def smallest(name: str) -> dict[str, Any]:
    """Return a config of a class with one block of each kind and heads of 192 dimensions."""
    config: dict[str, Any] = {"_class_name": name}
    for number, rope, _ in MODELS[name].values():
        config[number] = 4
        if rope is None:
            continue
        if isinstance(rope.head_dim, tuple):
            sizes = (2, 96) if rope.order == "geometric" else (1536, 8)
            config |= zip(rope.head_dim, sizes, strict=True)
        else:
            config.setdefault(rope.head_dim, 192)
        if isinstance(rope.dims, Key) and rope.order == "axial":
            config[rope.dims.name] = 16 if isinstance(rope.dims.default, int) else [72, 60, 60]
        if any(key.name == "rope_scaling" for key in rope.rule_keys):
            config["rope_scaling"] = {"short_factor": [1.0] * 96, "long_factor": [1.0] * 96}
    return config
