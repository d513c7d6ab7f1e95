"""Where each value of a layer's rope came from: a key of config.json, or the code of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ropewalk.rotary.config.conventions import PAIRING_KEYS, RopeConventions
from ropewalk.rotary.config.head_layouts import HEAD_COUNT_KEYS, HEAD_DIM_KEYS, WIDTH_KEYS
from ropewalk.rotary.config.rope_fields import ROPE_KEYS, rope_dictionary
from ropewalk.rotary.config.values import JsonObject, first_present

CLASS_DEFAULT = "default of the model's class"
MODEL_TYPE = "model_type"  # what a config.json does not say, and a table by model type does
WHOLE_HEAD = "whole head"
ARGUMENT = "argument"


class LayerSources(NamedTuple):
    """What is said of one layer, by who said it.

    section: what the stack's section says. own: what `per_layer_config` says of the layer.
    layer_config: all that holds for the layer, the defaults of the model's class included.
    """

    section: JsonObject
    own: Mapping[str, Any]
    layer_config: JsonObject


def read_origins(
    said: LayerSources, conventions: RopeConventions, layer_type: str | None
) -> dict[str, str]:
    """Return where the fields of a layer's rope came from, by the names of `RotarySpec`.

    Each is a key ("rope_theta", "rope_parameters.full_attention.rope_theta",
    "hidden_size / num_attention_heads"), "model_type", "whole head", or `CLASS_DEFAULT`.
    """
    written, place = rope_dictionary(said.layer_config, conventions, layer_type)
    inside = {} if written is None else written
    has_type = any(inside.get(key) is not None for key in ("rope_type", "type"))
    return {
        "head_dim": _head_dim(said, conventions, layer_type),
        "rotary_dim": _rotary_dim(said, conventions, layer_type, inside, place),
        "theta": _theta(said, conventions, layer_type, inside, place),
        "pairing": first_present(said.section, PAIRING_KEYS) or MODEL_TYPE,
        "scaling": place if has_type else CLASS_DEFAULT,
    }


def _key(said: LayerSources, conventions: RopeConventions, layer_type: str | None, key: str) -> str:
    """Name the key that holds this setting in config.json, if one does."""
    if key in said.own:
        return f"per_layer_config.{key}"
    of_type = conventions.keys_by_layer_type.get(layer_type or "", {}).get(key, key)
    return of_type if of_type in said.section else CLASS_DEFAULT


def _outer_key(
    said: LayerSources, conventions: RopeConventions, layer_type: str | None, field: str
) -> str | None:
    """Name the key beside the rope's dictionary that states this field, if one does."""
    for key, named in ROPE_KEYS.items():
        if named == field and said.layer_config.get(key) is not None:
            return _key(said, conventions, layer_type, key)
    return None


def _theta(
    said: LayerSources,
    conventions: RopeConventions,
    layer_type: str | None,
    inside: JsonObject,
    place: str,
) -> str:
    if said.layer_config.get("layer_rope_theta") is not None:
        by_list = "layer_rope_theta" in said.section
        return "layer_rope_theta" if by_list else "per_layer_config.rope_theta"
    if inside.get("rope_theta") is not None:
        return f"{place}.rope_theta"
    for key in (conventions.rope_ratio_key, conventions.rope_theta_section):
        if key is not None and key in said.section:
            return key
    return _outer_key(said, conventions, layer_type, "rope_theta") or CLASS_DEFAULT


def _rotary_dim(
    said: LayerSources,
    conventions: RopeConventions,
    layer_type: str | None,
    inside: JsonObject,
    place: str,
) -> str:
    if conventions.head_layout in ("latent", "trailing"):
        return _key(said, conventions, layer_type, "qk_rope_head_dim")
    if conventions.rotary_dim_key is not None and conventions.rotary_dim_key in said.section:
        return conventions.rotary_dim_key
    if not conventions.partial_rotary:
        return WHOLE_HEAD
    if inside.get("partial_rotary_factor") is not None:
        return f"{place}.partial_rotary_factor"
    outer = _outer_key(said, conventions, layer_type, "partial_rotary_factor")
    if outer is not None:
        return outer
    return CLASS_DEFAULT if "partial_rotary_factor" in conventions.rope_defaults else WHOLE_HEAD


def _head_dim(said: LayerSources, conventions: RopeConventions, layer_type: str | None) -> str:
    if conventions.head_layout == "latent":
        return "qk_nope_head_dim + qk_rope_head_dim"
    stated = first_present(said.layer_config, HEAD_DIM_KEYS)
    if stated is not None:
        return _key(said, conventions, layer_type, stated)
    parts = [first_present(said.layer_config, keys) for keys in (WIDTH_KEYS, HEAD_COUNT_KEYS)]
    named = [_key(said, conventions, layer_type, str(part)) for part in parts]
    return CLASS_DEFAULT if set(named) == {CLASS_DEFAULT} else " / ".join(named)
