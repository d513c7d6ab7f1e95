"""The fields of one layer's rope: earlier forms are converted to today's form.

Earlier: `rope_scaling: {"type": …}` next to `rope_theta`, `partial_rotary_factor`, `rotary_pct`, …
Today: `rope_parameters: {"rope_type": …, "rope_theta": …}`, for all layers or by layer type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.source import named
from ropewalk.rotary.config.values import JsonObject, positive_float, positive_theta
from ropewalk.rotary.spec import MAX_HEAD_DIM

# Keys that may be next to the rope's own dictionary, and the fields that they set.
ROPE_KEYS = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}
DEFAULT_ROPE_TYPES = ("default", "axial", "mrope")  # rope types without a scaling rule
EARLIER_ROPE_TYPES = {"su": "longrope"}
INTERLEAVED_AXES_FIELDS = ("mrope_interleaved", "interleaved")  # Qwen3-Omni has the second name
MAX_FIELDS = 100  # published ropes have some 15
COMMON_FIELDS = {  # of every rope type
    "rope_theta",
    "partial_rotary_factor",
    "mrope_section",
    *INTERLEAVED_AXES_FIELDS,
}


def read_rope_fields(
    layer_config: JsonObject, conventions: RopeConventions, layer_type: str | None
) -> dict[str, Any] | None:
    """Return the rope's fields in today's form, or None if the layer type has none."""
    written, place = rope_dictionary(layer_config, conventions, layer_type)
    by_layer_type = "." in place
    if written is None:
        return None
    rope_fields = {name: value for name, value in written.items() if value is not None}
    for name, value in rope_fields.items():
        if isinstance(value, (list, tuple, Mapping)) and len(value) > MAX_HEAD_DIM // 2:
            raise ValueError(
                f"{named(name)} must have at most {MAX_HEAD_DIM // 2:,} entries, got {len(value):,}"
            )
    for key, name in ROPE_KEYS.items():
        value = layer_config.get(key)
        if value is None:
            continue
        (positive_theta if name == "rope_theta" else positive_float)(key, value)
        path = f"{place}.{name}" if written.get(name) is not None else name
        if not by_layer_type and rope_fields.get(name, value) != value:
            raise ValueError(
                f"{key} must be the same as {path}, {shown(rope_fields[name])}, "
                f"got {shown(value)}; remove one of them"
            )
        rope_fields.setdefault(name, value)
    rope_type = _rope_type(rope_fields)
    for name in ("rope_type", "type"):
        rope_fields.pop(name, None)
    rope_fields["rope_type"] = rope_type
    for name, value in conventions.rope_defaults.items():
        # A missing theta of one layer type is not filled in: no published model has a default.
        if not (by_layer_type and name == "rope_theta"):
            rope_fields.setdefault(name, value)
    if "rope_theta" in rope_fields:
        positive_theta("rope_theta", rope_fields["rope_theta"])
    own_theta = layer_config.get("layer_rope_theta")
    if own_theta is not None:
        positive_theta("layer_rope_theta", own_theta)
        if conventions.one_theta and rope_fields["rope_theta"] != own_theta:
            raise ValueError(
                f"layer_rope_theta must be 0 or the model's rope_theta, "
                f"{shown(rope_fields['rope_theta'])}, since the model's code uses no other theta, "
                f"got {shown(own_theta)}"
            )
        rope_fields["rope_theta"] = own_theta
    return rope_fields


def rope_dictionary(
    layer_config: JsonObject, conventions: RopeConventions, layer_type: str | None
) -> tuple[JsonObject | None, str]:
    """Return the dictionary of this layer's rope, and where it is in the config.

    The place is "rope_parameters" or "rope_scaling", followed by a dot and the layer type if each
    layer type has its own dictionary.
    """
    written, is_today = _today_or_earlier(layer_config)
    place = "rope_parameters" if is_today else "rope_scaling"
    if len(written) > MAX_FIELDS:
        raise ValueError(
            f"rope_parameters must have at most {MAX_FIELDS} fields or types of layers, "
            f"got {len(written):,}"
        )
    name = conventions.rope_parameters_names.get(layer_type or "", layer_type)
    layer_types = [key for key, value in written.items() if isinstance(value, Mapping)]
    if not layer_types:
        differ = conventions.keys_by_layer_type or conventions.unscaled_layer_types
        if conventions.rope_parameters_by_layer_type or (is_today and differ):
            raise ValueError(
                f"rope_parameters must have a dictionary for each type of layer, such as "
                f"{shown(name)}, got {shown(written)}"
            )
        return written, place
    misplaced = [key for key in written if _is_misplaced(key, written, layer_types)]
    if misplaced:
        raise ValueError(
            f"{named(misplaced[0])} must be in the fields of each layer type if layer types have "
            f"their own fields, got {shown(written[misplaced[0]])} next to {_names(layer_types)}"
        )
    if name is None:
        raise ValueError(
            f"layer_types must name the type of each layer, since rope_parameters has "
            f"{_names(layer_types)}"
        )
    if name not in written:
        raise ValueError(
            f"rope_parameters must have {shown(name)}, a layer type, got {_names(layer_types)}"
        )
    return written[name], f"{place}.{name}"


def _names(layer_types: list[str]) -> str:
    return shown(sorted(map(str, layer_types)))


def _today_or_earlier(layer_config: JsonObject) -> tuple[JsonObject, bool]:
    """Return `rope_parameters` or `rope_scaling`, and whether it is `rope_parameters`."""
    dictionaries = []
    for key in ("rope_parameters", "rope_scaling"):
        value = {} if layer_config.get(key) is None else layer_config[key]
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a dictionary or null, got {shown(value)}")
        dictionaries.append(value)
    today, earlier = dictionaries
    if today and earlier and today != earlier:
        raise ValueError(
            f"rope_scaling must be absent if rope_parameters differs from it, "
            f"got both: {shown(earlier)} and {shown(today)}"
        )
    return today or earlier, bool(today)


def _is_misplaced(key: str, written: JsonObject, layer_types: list[str]) -> bool:
    """Return whether a key next to the layer types is not repeated in them, with its value."""
    value = written[key]
    if key in layer_types or value is None:
        return False
    repeated = [written[name][key] for name in layer_types if key in written[name]]
    return not repeated or any(each != value for each in repeated)


def _rope_type(rope_fields: JsonObject) -> str:
    """Return the name of the rule; `type` is the earlier name of `rope_type`."""
    names = []
    for key in ("rope_type", "type"):
        name = rope_fields.get(key)
        if name is None:
            continue
        if not isinstance(name, str):
            raise ValueError(f"{key} must be a string, got {shown(name)}")
        names.append(EARLIER_ROPE_TYPES.get(name, name))
    if len(set(names)) > 1 and names != ["default", "mrope"]:
        raise ValueError(
            f"type must be the same as rope_type, {shown(names[0])}, got {shown(names[1])}"
        )
    others = sorted(map(str, rope_fields.keys() - COMMON_FIELDS))
    if not names and others:
        raise ValueError(f"rope_type must be given with {shown(others)}, got none")
    return names[-1] if names else "default"
