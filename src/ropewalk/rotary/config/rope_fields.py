"""The fields of one layer's rope, in today's form, and the scaling rule that they describe.

Earlier: `rope_scaling: {"type": …}` next to `rope_theta`, `partial_rotary_factor`, `rotary_pct`, …
Today: `rope_parameters: {"rope_type": …, "rope_theta": …}`, for all layers or by layer type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary import scaling
from ropewalk.rotary.config.config_json import (
    JsonObject,
    by_usual_names,
    named,
    positive_float,
    positive_length,
    positive_theta,
)
from ropewalk.rotary.config.conventions import DOUBLING_KEY, XPOS, RopeConventions
from ropewalk.rotary.scaling import Scaling
from ropewalk.rotary.spec import MAX_HEAD_DIM

# Keys that may be next to the rope's own dictionary, and the fields that they set.
ROPE_KEYS = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}
ROPE_TYPE_KEYS = ("rope_type", "type")
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
ORIGINAL_LENGTH = "original_max_position_embeddings"
# Fields of rules that have another name in a config.json.
JSON_NAMES = {"original_length": ORIGINAL_LENGTH, "fraction": "partial_rotary_factor"}
RULES_BY_ROPE_TYPE: dict[str, type[Scaling]] = {
    "linear": scaling.Linear,
    "ntk": scaling.MixedNTK,
    "dynamic": scaling.DynamicNTK,
    "yarn": scaling.YaRN,
    "longrope": scaling.LongRoPE,
    "llama3": scaling.Llama3,
    "proportional": scaling.Proportional,
}
# Fields that files have in addition to those of the rule, without effect.
UNUSED_BY_ALPHA = {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}  # Hunyuan's
UNUSED_BY_YARN = {"finetuned"}
# Fields that only some code reads, and what to write instead.
OTHERS_FIELDS = {
    "attn_factor": ", by which vLLM and SGLang multiply the amplitude and which transformers "
    "ignores: write the product as attention_factor"
}


def read_rope_fields(
    layer_config: JsonObject, conventions: RopeConventions, layer_type: str | None
) -> dict[str, Any] | None:
    """Return the rope's fields in today's form, or None if the layer type has none."""
    written, place = rope_dictionary(layer_config, conventions, layer_type)
    by_layer_type = "." in place
    if written is None:
        return None
    rope_fields, _ = by_usual_names(written, conventions.rope_names)
    for key in ROPE_TYPE_KEYS:
        if isinstance(rope_fields.get(key), str):
            rope_fields[key] = conventions.rope_names.get(rope_fields[key], rope_fields[key])
    for name, value in rope_fields.items():
        if isinstance(value, (list, tuple, Mapping)) and len(value) > MAX_HEAD_DIM // 2:
            raise ValueError(
                f"{named(name)} must have at most {MAX_HEAD_DIM // 2:,} entries, got {len(value):,}"
            )
    for key, name in ROPE_KEYS.items():
        value = layer_config.get(key)
        if value is None:
            continue
        key = conventions.written_keys.get(key, key)
        (positive_theta if name == "rope_theta" else positive_float)(key, value)
        path = f"{place}.{name}" if written.get(name) is not None else name
        if not by_layer_type and rope_fields.get(name, value) != value:
            raise ValueError(
                f"{key} must be the same as {path}, {shown(rope_fields[name])}, "
                f"got {shown(value)}; remove one of them"
            )
        rope_fields.setdefault(name, value)
    rope_fields["rope_type"] = _rope_type(rope_fields)
    rope_fields.pop("type", None)
    if DOUBLING_KEY in conventions.extra_fields and boolean(layer_config, DOUBLING_KEY):
        if rope_fields["rope_type"] != "default":
            raise ValueError(f"{DOUBLING_KEY} must be false if rope_type is not default, got true")
        rope_fields |= {"rope_type": "dynamic", DOUBLING_KEY: True}
        rope_fields["seq_length"] = layer_config.get("seq_length")
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
        if conventions.rope_parameters_by_layer_type or (is_today and conventions.layers_differ):
            raise ValueError(
                f"rope_parameters must have a dictionary for each type of layer, such as "
                f"{shown(name)}, got {shown(written)}"
            )
        return written, place
    names = shown(sorted(map(str, layer_types)))
    misplaced = [key for key in written if _is_misplaced(key, written, layer_types)]
    if misplaced:
        raise ValueError(
            f"{named(misplaced[0])} must be in the fields of each layer type if layer types have "
            f"their own fields, got {shown(written[misplaced[0]])} next to {names}"
        )
    if name is None:
        raise ValueError(
            f"layer_types must name the type of each layer, since rope_parameters has {names}"
        )
    if name not in written:
        raise ValueError(f"rope_parameters must have {shown(name)}, a layer type, got {names}")
    return written[name], f"{place}.{name}"


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
    return not repeated or any(other != value for other in repeated)


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


def read_scaling(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> Scaling | None:
    """Return the rule that these fields describe; raise if it does not have one of them."""
    rope_type = rope_fields["rope_type"]
    if rope_type == "yarn":
        rope_fields = {**rope_fields, **conventions.yarn_fields}
    extra_fields = set(conventions.extra_fields)
    by_alpha = "alpha" in rope_fields or "xdrope" in conventions.rope_names
    if rope_type == "dynamic" and by_alpha and "alpha" in extra_fields:
        # Hunyuan calls its rule dynamic, but its alpha does not depend on the length.
        check_unknown_fields(rope_fields, UNUSED_BY_ALPHA | extra_fields)
        if rope_fields.get("factor", 1.0) != 1.0:
            raise ValueError(
                f"factor must be 1.0 if there is an alpha, got {shown(rope_fields['factor'])}"
            )
        return scaling.NTKAware(factor=positive_float("alpha", rope_fields.get("alpha")))
    if rope_type == "dynamic" and DOUBLING_KEY in extra_fields & rope_fields.keys():
        check_unknown_fields(rope_fields, extra_fields)
        return scaling.QwenNTK(positive_length("seq_length", rope_fields.get("seq_length")))
    extra_fields.discard("alpha")
    if rope_type in DEFAULT_ROPE_TYPES and (
        rope_type != "axial" or conventions.head_layout == "axial"
    ):
        if rope_fields.get("factor", 1.0) != 1.0:
            raise ValueError(
                f"factor must be absent for rope_type {shown(rope_type)}, "
                f"got {shown(rope_fields['factor'])}"
            )
        check_unknown_fields(rope_fields, {"factor", ORIGINAL_LENGTH} | extra_fields)
        return None
    if rope_type not in RULES_BY_ROPE_TYPE:
        known = [*DEFAULT_ROPE_TYPES, *RULES_BY_ROPE_TYPE, *EARLIER_ROPE_TYPES]
        raise ValueError(
            f"rope_type must be one of {', '.join(known)}, got {shown(rope_type)}"
            + (f": {XPOS}" if rope_type == "xpos" else did_you_mean(rope_type[:80], known))
        )
    rule = _read_rule(layer_config, rope_fields, extra_fields)
    return _with_ratio(rule) if conventions.yarn_ratio and isinstance(rule, scaling.YaRN) else rule


def boolean(layer_config: JsonObject, key: str) -> bool:
    """Return the value of a key that switches something on or off."""
    value = layer_config.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, got {shown(value)}")
    return value


def _read_rule(
    layer_config: JsonObject, rope_fields: JsonObject, extra_fields: set[str]
) -> Scaling:
    rope_type = rope_fields["rope_type"]
    rule = RULES_BY_ROPE_TYPE[rope_type]
    fields = {JSON_NAMES.get(x.name, x.name): x for x in dataclasses.fields(rule)}  # type: ignore[arg-type]
    unused = UNUSED_BY_YARN if rope_type == "yarn" else set()
    check_unknown_fields(rope_fields, {*fields, *extra_fields, *unused})
    values: dict[str, Any] = {}
    for key, field in fields.items():
        value: Any = rope_fields.get(key)
        if key == ORIGINAL_LENGTH:
            value = _original_length(layer_config, rope_fields)
        if value is None and rope_type == "longrope" and key == "factor":
            value = _length_ratio(layer_config, rope_fields)
        if value is not None:
            values[field.name] = _checked(key, value)
        elif field.default is dataclasses.MISSING:
            raise ValueError(
                f"{key} must be given for rope_type {shown(rope_type)}, "
                f"got none in {shown(rope_fields)}"
            )
    return rule(**values)


def _with_ratio(rule: scaling.YaRN) -> scaling.YaRN:
    """State the amplitude that DeepSeek's code has if one of its two mscales is missing or 0.

    Source: deepseek-ai/DeepSeek-V2, modeling_deepseek.py, DeepseekV2YarnRotaryEmbedding; the same
    in vLLM's deepseek_scaling_rope.py. transformers then has m(1).
    """
    numbers = rule.mscale, rule.mscale_all_dim
    if rule.attention_factor is not None or numbers == (None, None) or all(numbers):
        return rule
    mscale = 1.0 if rule.mscale is None else rule.mscale
    ratio = rule.sharpening(mscale) / rule.sharpening(rule.mscale_all_dim or 0.0)
    return dataclasses.replace(rule, attention_factor=ratio)


def _checked(key: str, value: Any) -> Any:
    """Return a field's value; raise if its type is not that of the rule."""
    if key in ("short_factor", "long_factor"):
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{key} must be a list of numbers, got {shown(value)}")
        if len(value) > MAX_HEAD_DIM // 2:
            raise ValueError(
                f"{key} must have an entry for each pair, at most {MAX_HEAD_DIM // 2:,}, "
                f"got {len(value):,}"
            )
        return tuple(positive_float(f"{key}[{i}]", divisor) for i, divisor in enumerate(value))
    if key == "truncate":
        if not isinstance(value, bool):
            raise ValueError(f"truncate must be true or false, got {shown(value)}")
        return value
    if key == ORIGINAL_LENGTH:
        return value  # already checked
    if key in ("mscale", "mscale_all_dim"):
        return positive_float(key, value, zero=True, least=0.0)
    return positive_float(key, value)


def _original_length(layer_config: JsonObject, rope_fields: JsonObject) -> int | None:
    """Return the original length, from the key where models with this rule have it."""
    dynamic = rope_fields["rope_type"] == "dynamic"
    top_key = "max_position_embeddings" if dynamic else ORIGINAL_LENGTH
    at_top, inside = layer_config.get(top_key), rope_fields.get(ORIGINAL_LENGTH)
    if at_top is not None:
        at_top = positive_length(top_key, at_top, 2)
    if inside is not None:
        inside = positive_length(ORIGINAL_LENGTH, inside, 2)
    if at_top is not None and inside is not None and at_top != inside:
        raise ValueError(
            f"{ORIGINAL_LENGTH} in the rope's own fields must be the same as {top_key} at the top "
            f"level, got {shown(inside)} and {shown(at_top)}"
        )
    length = at_top if inside is None else inside
    if length is None and dynamic:
        raise ValueError(f"{top_key} must be given for rope_type 'dynamic', got none")
    return length


def _length_ratio(layer_config: JsonObject, rope_fields: JsonObject) -> float | None:
    """Return the ratio of the model's length to the original one."""
    key = "max_position_embeddings"
    longest = layer_config.get(key)
    original = _original_length(layer_config, rope_fields)
    if longest is None:
        raise ValueError(f"factor or {key} must be given for longrope, got none")
    return None if original is None else positive_length(key, longest) / original


def check_unknown_fields(rope_fields: JsonObject, known: set[str]) -> None:
    """Raise for a field of the rope that its rope type does not have."""
    unknown = sorted(map(str, rope_fields.keys() - known - COMMON_FIELDS - {"rope_type"}))
    if unknown:
        guess = OTHERS_FIELDS.get(unknown[0]) or did_you_mean(unknown[0], known | COMMON_FIELDS)
        raise ValueError(
            f"rope_type {shown(rope_fields['rope_type'])} has no field {shown(unknown[0])}"
            + (guess or f"; it has {', '.join(sorted(known))}")
        )


def write_scaling(rule: Scaling | None) -> dict[str, Any]:
    """Return a rule as fields of a rope, which `read_scaling` reads back to an equal rule."""
    if rule is None:
        return {"rope_type": "default"}
    if isinstance(rule, scaling.NTKAware):
        return {"rope_type": "dynamic", "alpha": rule.factor, "factor": 1.0}
    if isinstance(rule, scaling.QwenNTK):  # in config.json these are next to the rope
        return {"rope_type": "dynamic", DOUBLING_KEY: True, "seq_length": rule.original_length}
    (rope_type,) = (name for name, made in RULES_BY_ROPE_TYPE.items() if type(rule) is made)
    rope_fields: dict[str, Any] = {"rope_type": rope_type}
    for field in dataclasses.fields(rule):  # type: ignore[arg-type]
        value = getattr(rule, field.name)
        if value is not None:
            key = JSON_NAMES.get(field.name, field.name)
            rope_fields[key] = list(value) if isinstance(value, tuple) else value
    return rope_fields
