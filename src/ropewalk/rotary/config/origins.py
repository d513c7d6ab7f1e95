"""The origin of each value of a layer's rope: a key of config.json, or the code of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ropewalk.rotary.config.conventions import (
    CONVERTED_PAIRING_KEY,
    PAIRING_KEYS,
    RopeConventions,
)
from ropewalk.rotary.config.head_layouts import HEAD_COUNT_KEYS, HEAD_DIM_KEYS, WIDTH_KEYS
from ropewalk.rotary.config.rope_fields import ROPE_KEYS, rope_dictionary
from ropewalk.rotary.config.values import JsonObject, first_present

CLASS_DEFAULT = "default of the model's class"
MODEL_TYPE = "model_type"  # not in the config.json, but in a table by model type
WHOLE_HEAD = "whole head"
ARGUMENT = "argument"


class LayerSources(NamedTuple):
    """The settings of one layer, by their source.

    section: the stack's section. own: the layer's entry in `per_layer_config`. layer_config: all
    settings of the layer, including the defaults of the model's class.
    """

    section: JsonObject
    own: Mapping[str, Any]
    layer_config: JsonObject


def read_origins(
    sources: LayerSources, conventions: RopeConventions, layer_type: str | None
) -> dict[str, str]:
    """Return where the fields of a layer's rope came from, by the names of `RotarySpec`.

    Each is a key ("rope_theta", "rope_parameters.full_attention.rope_theta",
    "hidden_size / num_attention_heads"), "model_type", "whole head", or `CLASS_DEFAULT`.
    """
    written, place = rope_dictionary(sources.layer_config, conventions, layer_type)
    inside = {} if written is None else written
    has_type = any(inside.get(key) is not None for key in ("rope_type", "type"))
    return {
        "head_dim": _head_dim(sources, conventions, layer_type),
        "rotary_dim": _rotary_dim(sources, conventions, layer_type, inside, place),
        "theta": _theta(sources, conventions, layer_type, inside, place),
        "pairing": first_present(sources.section, (CONVERTED_PAIRING_KEY, *PAIRING_KEYS))
        or MODEL_TYPE,
        "scaling": place if has_type else CLASS_DEFAULT,
    }


def _key(
    sources: LayerSources, conventions: RopeConventions, layer_type: str | None, key: str
) -> str:
    """Return the key of this setting in config.json, or `CLASS_DEFAULT`."""
    if key in sources.own:
        return f"per_layer_config.{key}"
    of_type = conventions.keys_by_layer_type.get(layer_type or "", {}).get(key, key)
    return of_type if of_type in sources.section else CLASS_DEFAULT


def _outer_key(
    sources: LayerSources, conventions: RopeConventions, layer_type: str | None, field: str
) -> str | None:
    """Return the key next to the rope's dictionary that has this field, or None."""
    for key, named in ROPE_KEYS.items():
        if named == field and sources.layer_config.get(key) is not None:
            return _key(sources, conventions, layer_type, key)
    return None


def _theta(
    sources: LayerSources,
    conventions: RopeConventions,
    layer_type: str | None,
    inside: JsonObject,
    place: str,
) -> str:
    if sources.layer_config.get("layer_rope_theta") is not None:
        by_list = "layer_rope_theta" in sources.section
        return "layer_rope_theta" if by_list else "per_layer_config.rope_theta"
    if inside.get("rope_theta") is not None:
        return f"{place}.rope_theta"
    for key in (conventions.rope_ratio_key, conventions.rope_theta_section):
        if key is not None and key in sources.section:
            return key
    return _outer_key(sources, conventions, layer_type, "rope_theta") or CLASS_DEFAULT


def _rotary_dim(
    sources: LayerSources,
    conventions: RopeConventions,
    layer_type: str | None,
    inside: JsonObject,
    place: str,
) -> str:
    if conventions.head_layout in ("latent", "trailing"):
        return _key(sources, conventions, layer_type, "qk_rope_head_dim")
    if conventions.rotary_dim_key is not None and conventions.rotary_dim_key in sources.section:
        return conventions.rotary_dim_key
    if not conventions.partial_rotary:
        return WHOLE_HEAD
    if inside.get("partial_rotary_factor") is not None:
        return f"{place}.partial_rotary_factor"
    outer = _outer_key(sources, conventions, layer_type, "partial_rotary_factor")
    if outer is not None:
        return outer
    return CLASS_DEFAULT if "partial_rotary_factor" in conventions.rope_defaults else WHOLE_HEAD


def _head_dim(sources: LayerSources, conventions: RopeConventions, layer_type: str | None) -> str:
    if conventions.head_layout == "latent":
        return "qk_nope_head_dim + qk_rope_head_dim"
    stated = first_present(sources.layer_config, HEAD_DIM_KEYS)
    if stated is not None:
        return _key(sources, conventions, layer_type, stated)
    parts = [first_present(sources.layer_config, keys) for keys in (WIDTH_KEYS, HEAD_COUNT_KEYS)]
    named = [_key(sources, conventions, layer_type, str(part)) for part in parts]
    return CLASS_DEFAULT if set(named) == {CLASS_DEFAULT} else " / ".join(named)
