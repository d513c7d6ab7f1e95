"""Read a config that `ModelSpec` refuses, if transformers reads it with a silent assumption.

Two mistakes are common: a rule without its original length, and a field that no rule has. Others
stay errors, since it is not known what a model's code makes of them.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary.config.config_json import JsonObject, named
from ropewalk.rotary.config.rope_fields import (
    COMMON_FIELDS,
    EARLIER_ROPE_TYPES,
    JSON_NAMES,
    MAX_FIELDS,
    ORIGINAL_LENGTH,
    RULES_BY_ROPE_TYPE,
    UNUSED_BY_YARN,
)
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.inspect.facts import Caution

MAX_LENGTH = "max_position_embeddings"
NEEDS_ORIGINAL = ("yarn", "llama3", "longrope")


class Reading(NamedTuple):
    """A model, the config that it was read from, and what had to be assumed."""

    model: ModelSpec
    config: JsonObject
    assumptions: tuple[Caution, ...]


class RopePlace(NamedTuple):
    """A rope's fields in a config, the section that they are in, and their path."""

    fields: dict[str, Any]
    section: dict[str, Any]
    path: str


def read_with_repairs(config: JsonObject, pairing: str | None) -> Reading:
    """Read a config as it is, else as transformers would. Raises the error of the first attempt."""
    try:
        return Reading(ModelSpec.from_config(config, pairing=pairing), config, ())
    except ValueError as error:
        if not any(list(_repair(_copied(place))) for place in rope_places(dict(config))):
            raise
        changed = copy.deepcopy(dict(config))
        assumptions = [caution for place in rope_places(changed) for caution in _repair(place)]
        try:
            model = ModelSpec.from_config(changed, pairing=pairing)
        except ValueError:
            raise error from None
        return Reading(model, changed, tuple(assumptions))


def _copied(place: RopePlace) -> RopePlace:
    return place._replace(fields=dict(place.fields))


def rope_places(section: dict[str, Any], path: str = "", depth: int = 3) -> Iterator[RopePlace]:
    """Yield the fields of each rope in a config and in its sections."""
    for key in ("rope_parameters", "rope_scaling"):
        written = section.get(key)
        if not isinstance(written, dict) or len(written) > MAX_FIELDS:
            continue
        inner = {name: each for name, each in written.items() if isinstance(each, dict)}
        if not inner:
            yield RopePlace(written, section, f"{path}{key}")
        for name, each in inner.items():
            yield RopePlace(each, section, f"{path}{key}.{named(name)}")
    if depth:
        for key, value in section.items():
            if isinstance(value, dict) and str(key).endswith("config"):
                yield from rope_places(value, f"{path}{named(key)}.", depth - 1)


def _repair(place: RopePlace) -> Iterator[Caution]:
    """Change a rope's fields to what transformers makes of them; yield what was assumed."""
    name = place.fields.get("rope_type", place.fields.get("type"))
    rope_type = EARLIER_ROPE_TYPES.get(name, name) if isinstance(name, str) else None
    rule = RULES_BY_ROPE_TYPE.get(rope_type or "")
    if rule is None:
        return
    yield from _drop_unknown(place, rope_type or "", rule)
    stated = place.fields.get(ORIGINAL_LENGTH) or place.section.get(ORIGINAL_LENGTH)
    longest = place.section.get(MAX_LENGTH)
    if rope_type in NEEDS_ORIGINAL and stated is None and isinstance(longest, int):
        place.fields[ORIGINAL_LENGTH] = longest
        yield Caution(
            "original-length-missing",
            place.path,
            f"{ORIGINAL_LENGTH} is missing. transformers silently uses {MAX_LENGTH} = {longest:,} "
            f"instead, and so does this report; TensorRT-LLM uses 1,024. If {longest:,} is already "
            f"the extended length, the length is scaled twice and the wrong pairs are interpolated",
            f"add {ORIGINAL_LENGTH}: the length that the model was trained with before the rule",
        )


def _drop_unknown(place: RopePlace, rope_type: str, rule: type[Any]) -> Iterator[Caution]:
    known = {JSON_NAMES.get(each.name, each.name) for each in dataclasses.fields(rule)}
    known |= {"rope_type", "type", *COMMON_FIELDS, *UNUSED_BY_YARN}
    for key in [key for key in place.fields if key not in known]:
        value = place.fields.pop(key)
        yield Caution(
            "unknown-field",
            f"{place.path}.{named(key)}",
            f"rope_type {rope_type!r} has no field {named(key)}, here {shown(value, 40)}. "
            f"transformers ignores it, and so does this report",
            _way_out(place, key, value, known),
        )


def _way_out(place: RopePlace, key: Any, value: Any, known: set[str]) -> str:
    factor = place.fields.get("factor")
    numbers = [each for each in (value, factor) if isinstance(each, (int, float)) and each > 0]
    if key == "attn_factor" and "attention_factor" in known and len(numbers) == 2:
        # vLLM and llama.cpp multiply YaRN's amplitude by it.
        amplitude = value * (1 + 0.1 * math.log(max(1.0, float(factor or 1))))
        return (
            f"if the model was trained with it, write attention_factor: {amplitude:.6g}, which is "
            f"attn_factor times YaRN's own amplitude"
        )
    guess = did_you_mean(str(key), known).removeprefix("; did you mean ").removesuffix("?")
    return f"write {guess} if that is meant, or remove it" if guess else f"remove {named(key)}"


def is_missing_original(cautions: tuple[Caution, ...]) -> bool:
    """Return whether the original length of a rule was assumed."""
    return any(caution.id == "original-length-missing" for caution in cautions)


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is an object of a config, else an empty one."""
    return value if isinstance(value, Mapping) else {}
