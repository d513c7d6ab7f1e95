"""What a config.json says of one layer: the settings of its stack, and what is the layer's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.layer_types import entry_of_layer
from ropewalk.rotary.config.values import JsonObject, as_list


def read_layer_overrides(
    settings: JsonObject, conventions: RopeConventions, layer: int, layer_type: str | None
) -> dict[str, Any]:
    """Return the settings that this layer has otherwise; None: it has not got the setting.

    `layer_rope_theta` is then the theta that the config gives this layer alone, which goes before
    that of its type; 0 says that the layer has no rope.
    """
    own_settings = _own_settings(settings, layer)
    overrides = dict(own_settings)
    overrides["layer_rope_theta"] = overrides.pop("rope_theta", None)
    if "rope_theta" in own_settings:
        overrides["rope_theta"] = None
    for key, key_of_type in conventions.keys_by_layer_type.get(layer_type or "", {}).items():
        if key not in own_settings:
            overrides[key] = settings[key_of_type]
    if not _is_scaled(settings, conventions, layer, layer_type):
        overrides["rope_scaling"] = None
    return overrides


def _own_settings(settings: JsonObject, layer: int) -> dict[str, Any]:
    """Return what `per_layer_config` and `layer_rope_theta` say of this layer."""
    own_settings: dict[str, Any] = {}
    layers = settings.get("per_layer_config", {})
    if not isinstance(layers, Mapping):
        raise ValueError(f"per_layer_config must be a dictionary by layers, got {layers!r}")
    for index, values in layers.items():
        if not str(index).isdecimal() or not isinstance(values, Mapping):
            raise ValueError(
                f"per_layer_config must hold a dictionary for each layer, "
                f"got {values!r} for {index!r}"
            )
        if int(index) == layer:
            own_settings |= {key: value for key, value in values.items() if value is not None}
    if "layer_rope_theta" in settings:
        own_settings["rope_theta"] = entry_of_layer(settings, "layer_rope_theta", layer)
    return own_settings


def _is_scaled(
    settings: JsonObject, conventions: RopeConventions, layer: int, layer_type: str | None
) -> bool:
    """Say whether the rule of the legacy `rope_scaling` counts in this layer."""
    key = conventions.scaled_layers_key
    if key is not None and key in settings:
        return layer in as_list(key, settings[key])
    return layer_type not in conventions.unscaled_layer_types
