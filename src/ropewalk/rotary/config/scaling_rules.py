"""Read and write the scaling rule in the fields of a rope."""

from __future__ import annotations

import dataclasses
from typing import Any

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary import scaling
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.rope_fields import DEFAULT_ROPE_TYPES, EARLIER_ROPE_TYPES
from ropewalk.rotary.config.unknown_keys import check_unknown_fields
from ropewalk.rotary.config.values import JsonObject, positive_float, positive_length
from ropewalk.rotary.scaling import Scaling
from ropewalk.rotary.spec import MAX_HEAD_DIM

ORIGINAL_LENGTH = "original_max_position_embeddings"
# Fields of rules that have another name in a config.json.
JSON_NAMES = {"original_length": ORIGINAL_LENGTH, "fraction": "partial_rotary_factor"}
RULES_BY_ROPE_TYPE: dict[str, type[Scaling]] = {
    "linear": scaling.Linear,
    "dynamic": scaling.DynamicNTK,
    "yarn": scaling.YaRN,
    "longrope": scaling.LongRoPE,
    "llama3": scaling.Llama3,
    "proportional": scaling.Proportional,
}
# Fields that files have in addition to those of the rule, without effect.
UNUSED_BY_ALPHA = {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}  # Hunyuan's
UNUSED_BY_YARN = {"finetuned"}


def read_scaling(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> Scaling | None:
    """Return the rule that these fields describe; raise if it does not have one of them."""
    rope_type = rope_fields["rope_type"]
    if rope_type == "yarn":
        rope_fields = {**rope_fields, **conventions.yarn_fields}
    extra_fields = set(conventions.extra_fields)
    if rope_type == "dynamic" and "alpha" in rope_fields and "alpha" in extra_fields:
        return _read_alpha(rope_fields, extra_fields)
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
            + did_you_mean(rope_type[:80], known)
        )
    return _read_rule(layer_config, rope_fields, extra_fields)


def _read_alpha(rope_fields: JsonObject, extra_fields: set[str]) -> Scaling:
    """Return Hunyuan's rule: it is called dynamic, but its alpha does not depend on the length."""
    check_unknown_fields(rope_fields, UNUSED_BY_ALPHA | extra_fields)
    if rope_fields.get("factor", 1.0) != 1.0:
        raise ValueError(
            f"factor must be 1.0 if there is an alpha, got {shown(rope_fields['factor'])}"
        )
    return scaling.NTKAware(factor=positive_float("alpha", rope_fields["alpha"]))


def _read_rule(
    layer_config: JsonObject, rope_fields: JsonObject, extra_fields: set[str]
) -> Scaling:
    rope_type = rope_fields["rope_type"]
    rule = RULES_BY_ROPE_TYPE[rope_type]
    values, known = {}, extra_fields | (UNUSED_BY_YARN if rope_type == "yarn" else set())
    for field in dataclasses.fields(rule):  # type: ignore[arg-type]
        key = JSON_NAMES.get(field.name, field.name)
        known.add(key)
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
    check_unknown_fields(rope_fields, known)
    return rule(**values)


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
        return tuple(positive_float(f"{key}[{i}]", each) for i, each in enumerate(value))
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
    for key, each in ((top_key, at_top), (ORIGINAL_LENGTH, inside)):
        if each is not None:
            positive_length(key, each, 2)
    if at_top is not None and inside is not None and at_top != inside:
        raise ValueError(
            f"{ORIGINAL_LENGTH} in the rope's own fields must be the same as {top_key} at the top "
            f"level, got {shown(inside)} and {shown(at_top)}"
        )
    length = at_top if inside is None else inside
    if length is None:
        if dynamic:
            raise ValueError(f"{top_key} must be given for rope_type 'dynamic', got none")
        return None
    return positive_length(ORIGINAL_LENGTH, length, 2)


def _length_ratio(layer_config: JsonObject, rope_fields: JsonObject) -> float | None:
    """Return the ratio of the model's length to the original one."""
    key = "max_position_embeddings"
    longest = layer_config.get(key)
    original = _original_length(layer_config, rope_fields)
    if longest is None:
        raise ValueError(f"factor or {key} must be given for longrope, got none")
    return None if original is None else positive_length(key, longest) / original


def write_scaling(rule: Scaling | None) -> dict[str, Any]:
    """Return a rule as fields of a rope, which `read_scaling` reads back to an equal rule."""
    if rule is None:
        return {"rope_type": "default"}
    if isinstance(rule, scaling.NTKAware):
        return {"rope_type": "dynamic", "alpha": rule.factor, "factor": 1.0}
    (rope_type,) = (name for name, made in RULES_BY_ROPE_TYPE.items() if type(rule) is made)
    rope_fields: dict[str, Any] = {"rope_type": rope_type}
    for field in dataclasses.fields(rule):  # type: ignore[arg-type]
        value = getattr(rule, field.name)
        if value is not None:
            key = JSON_NAMES.get(field.name, field.name)
            rope_fields[key] = list(value) if isinstance(value, tuple) else value
    return rope_fields
