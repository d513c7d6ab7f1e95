"""The rope fields of one config.json section, in all forms that there have been, as one.

Earlier: `rope_scaling: {"type": …}` beside `rope_theta`, `partial_rotary_factor`, `rotary_pct`, …;
now: `rope_parameters: {"rope_type": …, "rope_theta": …}`, for all layers or by layer type.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ropewalk.rotary import scaling
from ropewalk.rotary.config.conventions import Stack
from ropewalk.rotary.scaling import Scaling

Fields = dict[str, Any]

LARGEST = 2**40  # no length is larger; floats hold it exactly

# Where a value may stand beside the rope's own dictionary, and what it is called inside.
BESIDE = {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "rotary_pct": "partial_rotary_factor",
}

# What has a name of its own in a config.json; other fields of a rule are called as there.
JSON_NAME = {
    "original_length": "original_max_position_embeddings",
    "fraction": "partial_rotary_factor",
}
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
INTERLEAVED = ("mrope_interleaved", "interleaved")  # the second is Qwen3-Omni's
COMMON = {"rope_theta", "partial_rotary_factor", "mrope_section", *INTERLEAVED}


def gather(section: Mapping[str, Any], kind: str | None, stack: Stack) -> Fields | None:
    """The rope fields for one kind of layer; None where the config says that it has no rope."""
    given, nested = _given(section, kind, stack)
    if given is None:
        return None
    found = {key: value for key, value in given.items() if value is not None}
    for key, name in BESIDE.items():
        value = section.get(key)
        if value is None:
            continue
        _number(key, value)
        if not nested and found.get(name, value) != value:
            raise ValueError(
                f"{key} must say the same as {name} in the rope's own fields, {found[name]!r}, "
                f"got {value!r}: take one of them out"
            )
        found.setdefault(name, value)
    found["rope_type"] = _type(found)
    missing = {k: v for k, v in stack.defaults.items() if k in COMMON and k not in found}
    if nested:  # each has its own, and no model says which would stand for a missing one
        missing.pop("rope_theta", None)
    found |= missing
    if "rope_theta" in found:
        _number("rope_theta", found["rope_theta"])
    return found


def rule(
    found: Fields, section: Mapping[str, Any], extra: frozenset[str], *, axial: bool = False
) -> Scaling | None:
    """The scaling rule that these fields describe; every field must be one that it knows."""
    name = found["rope_type"]
    if name in NO_RULE and (name != "axial" or axial):
        if found.get("factor", 1.0) != 1.0:
            raise ValueError(f"factor must be absent for rope_type {name!r}, got {found['factor']}")
        _known(found, {"factor", "original_max_position_embeddings"} | (extra - {"alpha"}), name)
        return None
    if name == "dynamic" and "alpha" in found and "alpha" in extra:
        _known(found, {"factor"} | _KEYS_OF_HUNYUAN | extra, name)
        if found.get("factor", 1.0) != 1.0:
            raise ValueError(f"factor must be 1.0 where there is an alpha, got {found['factor']}")
        return scaling.NTKAware(factor=_number("alpha", found["alpha"]))
    if name not in RULES:
        known = [*NO_RULE, *RULES, *EARLIER]
        near = difflib.get_close_matches(name, known, n=1)
        raise ValueError(
            f"rope_type must be one of {', '.join(known)}, got {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    values, allowed = {}, set(extra - {"alpha"})
    for field in fields(RULES[name]):  # type: ignore[arg-type]
        key = JSON_NAME.get(field.name, field.name)
        allowed.add(key)
        value: Any = found.get(key)
        if field.name == "original_length":
            value = _length(name, key, found, section)
        if value is None and name == "longrope" and key == "factor":
            value = _extension(found, section)
        if value is not None:
            values[field.name] = _checked(key, value)
        elif field.default is MISSING:
            raise ValueError(f"{key} must be given for rope_type {name!r}, got none in {found}")
    _known(found, allowed | ({"finetuned"} if name == "yarn" else set()), name)
    return RULES[name](**values)


def _checked(key: str, value: Any) -> Any:
    """A field's value, of the type that the rule takes."""
    if key in ("short_factor", "long_factor"):
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{key} must be a list of numbers, got {value!r}")
        return tuple(_number(f"{key}[{i}]", each) for i, each in enumerate(value))
    if key == "truncate":
        if not isinstance(value, bool):
            raise ValueError(f"truncate must be true or false, got {value!r}")
        return value
    if key == JSON_NAME["original_length"]:
        return value  # checked where it was found
    return _number(key, value, zero=key in ("mscale", "mscale_all_dim"))


def _number(key: str, value: Any, *, zero: bool = False) -> Any:
    """A finite number above 0, or 0 itself where `zero` lets it in."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key} must be a number, got {value!r}")
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        rule = "finite and not negative" if zero else "finite and above 0"
        raise ValueError(f"{key} must be {rule}, got {value!r}")
    return value


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
        key = JSON_NAME.get(field.name, field.name)
        if value is not None:
            written[key] = list(value) if isinstance(value, tuple) else value
    return written


_KEYS_OF_HUNYUAN = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}  # there, and without use


def _given(
    section: Mapping[str, Any], kind: str | None, stack: Stack
) -> tuple[Mapping[str, Any] | None, bool]:
    """The dictionary that holds for this kind of layer, and whether each kind has its own."""
    both = {}
    for key in ("rope_parameters", "rope_scaling"):
        both[key] = {} if section.get(key) is None else section[key]
        if not isinstance(both[key], Mapping):
            raise ValueError(f"{key} must be a dictionary or null, got {both[key]!r}")
    now, earlier = both["rope_parameters"], both["rope_scaling"]
    if now and earlier and now != earlier:
        raise ValueError(
            f"rope_scaling must be absent where there are rope_parameters that differ from it, "
            f"got both: {earlier} and {now}"
        )
    given = now or earlier
    kinds = [key for key, value in given.items() if isinstance(value, Mapping)]
    if not kinds:
        if stack.nested or (now and (stack.of_kind or stack.unscaled)):
            raise ValueError(
                f"rope_parameters must hold a dictionary for each type of layer, as {kind!r}, "
                f"got {given}"
            )
        return given, False
    loose = sorted(key for key, value in given.items() if _is_loose(key, value, given, kinds))
    if loose:
        raise ValueError(
            f"{loose[0]} must stand in the fields of each layer type where they have their own, "
            f"got {given[loose[0]]!r} beside {sorted(kinds)}"
        )
    if kind is None:
        raise ValueError(
            f"layer_types must say what each layer is, for rope_parameters has {sorted(kinds)}"
        )
    if kind not in given:
        raise ValueError(f"rope_parameters must hold {kind!r}, a layer type, got {sorted(kinds)}")
    return given[kind], True


def _is_loose(key: str, value: Any, given: Mapping[str, Any], kinds: list[str]) -> bool:
    """Whether this key beside the layer types says more than is repeated within (Laguna)."""
    if key in kinds or value is None:
        return False
    within = [given[kind][key] for kind in kinds if key in given[kind]]
    return not within or any(each != value for each in within)


def _type(found: Fields) -> str:
    """The name of the rule; `type` is what `rope_type` was called earlier."""
    names = []
    for key in ("rope_type", "type"):
        name = found.pop(key, None)
        if name is None:
            continue
        if not isinstance(name, str):
            raise ValueError(f"{key} must be a string, got {name!r}")
        names.append(EARLIER.get(name, name))
    if len(set(names)) > 1 and names != ["default", "mrope"]:
        raise ValueError(f"type must be the same as rope_type, {names[0]!r}, got {names[1]!r}")
    if not names and found.keys() - COMMON:
        raise ValueError(
            f"rope_type must be given beside {sorted(found.keys() - COMMON)}, got none"
        )
    return names[-1] if names else "default"


def _length(name: str, key: str, found: Fields, section: Mapping[str, Any]) -> int | None:
    """The original length, from where this rule's models have it."""
    beside_key = "max_position_embeddings" if name == "dynamic" else key
    beside, inside = section.get(beside_key), found.get(key)
    if beside is not None and inside is not None and beside != inside:
        raise ValueError(
            f"{key} in the rope's own fields must be the same as {beside_key} at the top level, "
            f"got {inside!r} and {beside!r}"
        )
    value = beside if inside is None else inside
    if value is None:
        if name == "dynamic":
            raise ValueError(f"{beside_key} must be given for rope_type 'dynamic', got none")
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= LARGEST:
        raise ValueError(f"{key} must be an integer above 1, got {value!r}")
    return value


def _extension(found: Fields, section: Mapping[str, Any]) -> float | None:
    """How much longer the model's length is than the original one."""
    longest = section.get("max_position_embeddings")
    original = _length("longrope", JSON_NAME["original_length"], found, section)
    if longest is None:
        raise ValueError("factor or max_position_embeddings must be given for longrope, got none")
    return (
        None if original is None else float(_number("max_position_embeddings", longest)) / original
    )


def _known(found: Fields, allowed: set[str] | frozenset[str], name: str) -> None:
    unknown = sorted(found.keys() - allowed - COMMON - {"rope_type"})
    if unknown:
        raise ValueError(
            f"rope_type {name!r} has no field {unknown[0]!r}; it has {', '.join(sorted(allowed))}"
        )
