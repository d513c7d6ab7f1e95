"""What a target should do: the specification that a user names, from any form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from ropewalk.checks import check_int, shown
from ropewalk.rotary.config.config_json import LENGTH_KEYS, load_config
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.spec import RotarySpec


@dataclass(frozen=True)
class Specified:
    """The specification of one layer.

    others: those of the model's other layers that differ, by name. max_positions: how many
    positions the config promises, or None.
    """

    spec: RotarySpec | None = None
    others: Mapping[str, RotarySpec] = field(default_factory=dict)
    max_positions: int | None = None


def read_like(like: object, layer: int | None = None) -> Specified:
    """Return what `like` specifies. Raises ValueError for a layer without rope."""
    if like is None:
        if layer is not None:
            raise ValueError(f"layer must be left out without like, got {shown(layer)}")
        return Specified()
    if isinstance(like, (RotarySpec, LayerSpec)):
        if layer is not None:
            raise ValueError(f"layer must be left out if like is one layer's, got {shown(layer)}")
        return Specified(like if isinstance(like, RotarySpec) else _rope(like, "like"))
    if isinstance(like, ModelSpec):
        return _of_model(like, layer, None)
    if not isinstance(like, (str, PathLike, Mapping)) and not hasattr(like, "to_dict"):
        raise TypeError(
            "like must be a RotarySpec, LayerSpec, ModelSpec or a model's config, "
            f"got {shown(like)}"
        )
    model = ModelSpec.from_config(like)  # type: ignore[arg-type]
    return _of_model(model, layer, max_positions(like))


def max_positions(config: Any) -> int | None:
    """Return how many positions a config promises, or None."""
    loaded = load_config(config)
    for section in (loaded, loaded.get("text_config")):
        for key in LENGTH_KEYS:
            value = section.get(key) if isinstance(section, Mapping) else None
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _of_model(model: ModelSpec, layer: int | None, most: int | None) -> Specified:
    if layer is None:
        layer = next((i for i, each in enumerate(model.layers) if each.rope is not None), 0)
    check_int("layer", layer, 0)
    spec = _rope(model.layer(layer), f"layer {layer}")
    others: dict[str, RotarySpec] = {}
    for index, each in enumerate(model.layers):
        if each.rope is not None and each.rope != spec and each.rope not in others.values():
            kind = f", {each.layer_type}" if each.layer_type else ""
            others[f"layer {index}{kind}"] = each.rope
    return Specified(spec, others, most)


def _rope(layer: LayerSpec, name: str) -> RotarySpec:
    if layer.rope is None:
        raise ValueError(f"{name} must have a rope, got a layer without one (NoPE)")
    return layer.rope
