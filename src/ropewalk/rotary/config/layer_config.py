"""The settings of one layer in a config.json: those of its stack, and its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.layer_types import entry_of_layer, layer_indices
from ropewalk.rotary.config.values import JsonObject

OwnSettings = Mapping[int, dict[str, Any]]


def read_own_settings(settings: JsonObject, count: int) -> OwnSettings:
    """Return the settings that `per_layer_config` and `layer_rope_theta` have, by layer."""
    own_settings: dict[int, dict[str, Any]] = {}
    layers = settings.get("per_layer_config", {})
    if not isinstance(layers, Mapping):
        raise ValueError(f"per_layer_config must be a dictionary by layers, got {shown(layers)}")
    for index, values in layers.items():
        number = str(index)[:10]
        if not (number.isdecimal() and number.isascii()) or not isinstance(values, Mapping):
            raise ValueError(
                f"per_layer_config must have a dictionary for each layer, "
                f"got {shown(values)} for {shown(index)}"
            )
        own = {key: value for key, value in values.items() if value is not None}
        own_settings.setdefault(int(number), {}).update(own)
    if "layer_rope_theta" in settings:
        for layer in range(count):
            theta = entry_of_layer(settings, "layer_rope_theta", layer)
            own_settings.setdefault(layer, {})["rope_theta"] = theta
    return own_settings


def scaled_layers(
    settings: JsonObject, conventions: RopeConventions, count: int
) -> set[int] | None:
    """Return the layers that legacy `rope_scaling` applies to, or None if their types decide."""
    key = conventions.scaled_layers_key
    if key is None or key not in settings:
        return None
    return set(layer_indices(key, settings[key], count))


def read_layer_overrides(
    settings: JsonObject,
    conventions: RopeConventions,
    own_settings: dict[str, Any],
    layer_type: str | None,
    *,
    scaled: bool | None,
) -> dict[str, Any]:
    """Return the settings in which this layer differs; None removes a setting.

    `layer_rope_theta` is the theta that the config has for this one layer. It overrides that of the
    layer's type; 0 means that the layer has no rope.
    """
    overrides = dict(own_settings)
    overrides["layer_rope_theta"] = overrides.pop("rope_theta", None)
    if "rope_theta" in own_settings and not conventions.one_theta:
        overrides["rope_theta"] = None
    for key, key_of_type in conventions.keys_by_layer_type.get(layer_type or "", {}).items():
        if key not in own_settings:
            overrides[key] = settings[key_of_type]
    if not (layer_type not in conventions.unscaled_layer_types if scaled is None else scaled):
        overrides["rope_scaling"] = None
    return overrides
