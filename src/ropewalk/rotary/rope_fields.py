"""The rope fields of one config.json section, in all forms that there have been, as one.

Earlier: `rope_scaling: {"type": …}` beside `rope_theta`, `partial_rotary_factor`, `rotary_pct`, …;
now: `rope_parameters: {"rope_type": …, "rope_theta": …}`, for all layers or by layer type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ropewalk.rotary import scaling
from ropewalk.rotary.scaling import Scaling

Fields = dict[str, Any]

# Where a value may stand beside the rope's own dictionary, and what it is called inside.
BESIDE = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}

# What has a name of its own in a config.json; other fields of a rule are called as there.
JSON_NAME = {"original_length": "original_max_position_embeddings"}
RULES: dict[str, type[Scaling]] = {
    "linear": scaling.Linear,
    "dynamic": scaling.DynamicNTK,
    "yarn": scaling.YaRN,
    "longrope": scaling.LongRoPE,
    "llama3": scaling.Llama3,
    "proportional": scaling.Proportional,
}
NO_RULE = ("default", "axial", "mrope")
EARLIER = {"su": "longrope"}
COMMON = {"rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}


def gather(
    section: Mapping[str, Any], kind: str | None, defaults: Mapping[str, Any]
) -> Fields | None:
    """The rope fields for one kind of layer; None where the config says that it has no rope."""
    given, nested = _given(section, kind)
    if given is None:
        return None
    found = {key: value for key, value in given.items() if value is not None}
    for key, name in BESIDE.items():
        value = section.get(key)
        if value is None:
            continue
        if not nested and found.get(name, value) != value:
            raise ValueError(
                f"{key} must say the same as {name} in the rope's own fields, {found[name]!r}, "
                f"got {value!r}: take one of them out"
            )
        found.setdefault(name, value)
    found["rope_type"] = _type(found)
    return {**{k: v for k, v in defaults.items() if k in COMMON}, **found}


def rule(found: Fields, section: Mapping[str, Any], extra: frozenset[str]) -> Scaling | None:
    """The scaling rule that these fields describe; every field must be one that it knows."""
    name = found["rope_type"]
    if name in NO_RULE:
        if found.get("factor", 1.0) != 1.0:
            raise ValueError(f"factor must be absent for rope_type {name!r}, got {found['factor']}")
        _known(found, {"factor", "original_max_position_embeddings"} | extra, name)
        return None
    if name == "dynamic" and found.get("alpha"):
        _known(found, {"alpha", "factor"} | _KEYS_OF_HUNYUAN | extra, name)
        return scaling.NTKAware(factor=found["alpha"])
    if name not in RULES:
        raise ValueError(
            f"rope_type must be one of {', '.join([*NO_RULE, *RULES, *EARLIER])}, got {name!r}"
        )
    made = RULES[name]
    values, allowed = {}, set(extra)
    for field in fields(made):  # type: ignore[arg-type]
        key = "partial_rotary_factor" if field.name == "fraction" else field.name
        key = JSON_NAME.get(key, key)
        allowed.add(key)
        value: Any = found.get(key)
        if field.name == "original_length":
            value = _length(name, key, found, section)
        if value is None and name == "longrope" and key == "factor":
            value = _extension(found, section)
        if value is not None:
            values[field.name] = tuple(value) if isinstance(value, list) else value
        elif field.default is MISSING:
            raise ValueError(f"{key} must be given for rope_type {name!r}, got none in {found}")
    _known(found, allowed | ({"finetuned"} if name == "yarn" else set()), name)
    return made(**values)


def as_fields(rule: Scaling | None) -> Fields:
    """A rule as it is written in a config.json; what `rule` reads back to the same."""
    if rule is None:
        return {"rope_type": "default"}
    if isinstance(rule, scaling.NTKAware):
        return {"rope_type": "dynamic", "alpha": rule.factor, "factor": 1.0}
    (name,) = (name for name, made in RULES.items() if type(rule) is made)
    written: Fields = {"rope_type": name}
    for field in fields(rule):  # type: ignore[arg-type]
        value = getattr(rule, field.name)
        key = "partial_rotary_factor" if field.name == "fraction" else field.name
        if value is not None:
            written[JSON_NAME.get(key, key)] = list(value) if isinstance(value, tuple) else value
    return written


_KEYS_OF_HUNYUAN = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}  # there, and without use


def _given(section: Mapping[str, Any], kind: str | None) -> tuple[Mapping[str, Any] | None, bool]:
    """The dictionary that holds for this kind of layer, and whether each kind has its own."""
    now, earlier = section.get("rope_parameters"), section.get("rope_scaling")
    if now and earlier and now != earlier:
        raise ValueError(
            f"rope_scaling must be absent where there are rope_parameters that differ from it, "
            f"got both: {earlier} and {now}"
        )
    given = now or earlier or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"rope_parameters must be a dictionary, got {given!r}")
    kinds = {k for k, v in given.items() if isinstance(v, Mapping)}
    if not kinds:
        return given, False
    if kind is None:
        raise ValueError(
            f"layer_types must say what each layer is, for rope_parameters has {sorted(kinds)}"
        )
    if kind not in given:
        raise ValueError(f"rope_parameters must hold {kind!r}, a layer type, got {sorted(kinds)}")
    return given[kind], True


def _type(found: Fields) -> str:
    """The name of the rule; `type` is what `rope_type` was called earlier."""
    now, earlier = found.get("rope_type"), found.pop("type", None)
    names = [EARLIER.get(name, name) for name in (now, earlier) if name is not None]
    if len(set(names)) > 1 and names != ["default", "mrope"]:
        raise ValueError(f"type must be the same as rope_type, {now!r}, got {earlier!r}")
    return str(names[0]) if names else "default"


def _length(name: str, key: str, found: Fields, section: Mapping[str, Any]) -> int | None:
    """The original length, from where this rule's models have it."""
    if name == "dynamic":
        beside, inside = section.get("max_position_embeddings"), found.get(key)
        value = beside if inside is None else inside
    else:
        beside, inside = section.get(key), found.get(key)
        if beside is not None and inside is not None and beside != inside:
            raise ValueError(
                f"{key} must be the same at the top level and in the rope's own fields, "
                f"got {beside} and {inside}"
            )
        value = beside if inside is None else inside
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _extension(found: Fields, section: Mapping[str, Any]) -> float:
    """How much longer the model's length is than the original one."""
    longest = section.get("max_position_embeddings")
    if longest is None:
        raise ValueError("factor or max_position_embeddings must be given for longrope, got none")
    return float(longest) / (_length("longrope", JSON_NAME["original_length"], found, section) or 1)


def _known(found: Fields, allowed: set[str] | frozenset[str], name: str) -> None:
    unknown = sorted(found.keys() - allowed - COMMON - {"rope_type"})
    if unknown:
        raise ValueError(
            f"rope_type {name!r} has no field {unknown[0]!r}; it has {', '.join(sorted(allowed))}"
        )
