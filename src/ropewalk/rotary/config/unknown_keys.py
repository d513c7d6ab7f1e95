"""What a config.json says of a rope that nobody would read: an error, never a silence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.rotary.config.conventions import Stack
from ropewalk.rotary.config.fields import BESIDE, NO_RULE
from ropewalk.rotary.config.layer_types import TYPES

Section = Mapping[str, Any]

ABOUT_ROPE = re.compile(r"rope|rotary|alibi|position_embeddings?_type|dynamic_ntk")
READ = {
    *BESIDE,
    "rope_parameters",
    "rope_scaling",
    "qk_rope_head_dim",
    "rotary_dim",
}
# What says nothing of frequencies and pairs, as long as it has one of these values.
NO_MATTER: dict[str, tuple[Any, ...]] = {
    "rotary": (True,),
    "original_rope": (True,),
    "rope_full_precision": (True, False),
    "rotary_value": (False,),
    "use_mrope": (False,),
    "use_dynamic_ntk": (False,),
    "alibi": (False,),
    "position_embedding_type": ("rope", "rotary", "absolute"),
    "no_rope_layers": ([],),
}
INTERLEAVED = ("rope_interleave", "rope_interleaved")


def check_all_read(section: Section, stack: Stack) -> None:
    """Raise for a key about ropes that this family's reading does not know, or that it lacks."""
    read = READ | {*stack.only_if, *stack.defaults, *INTERLEAVED, stack.size, stack.scaled}
    read |= {*stack.needs, *stack.reads.values()}
    read |= {instead for keys in stack.of_kind.values() for instead in keys.values()}
    if stack.switched:
        read |= {"no_rope_layers", "no_rope_layer_interval"}
    for key, value in section.items():
        if not ABOUT_ROPE.search(key) or key in read or key.startswith("memory_attention_rope_"):
            continue
        if any(value == harmless for harmless in NO_MATTER.get(key, ())):
            continue
        raise ValueError(
            f"{key} must be absent, for it is not known what it means to the rope of this model, "
            f"got {value!r}"
        )
    stand_ins = {
        "layer_types": {*TYPES, *(stack.listed or ())[:1], stack.cycle},
        "rope_parameters": {"rope_parameters", "rope_scaling"},
    }
    inside = section.get("rope_parameters") or section.get("rope_scaling")
    inside = inside if isinstance(inside, Mapping) else {}
    kinds = [each for each in inside.values() if isinstance(each, Mapping)] or [inside]
    for key in stack.needs:
        within = BESIDE.get(key) == key and all(key in each for each in kinds)
        if not within and not stand_ins.get(key, {key}) & section.keys():
            raise ValueError(
                f"{key} must be given for this model, whose own code takes no plain value for it, "
                f"got none"
            )


def check_beside_sections(whole: Section, section: Section, path: str) -> None:
    """Raise where the top level says another rope than the section that is read."""
    if section is whole:
        return
    for key in ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"):
        value = whole.get(key) if path.endswith("text_config") else None
        if value is not None and _bare(value) != _bare(section.get(key)):
            raise ValueError(
                f"{key} must be the same at the top level and in {path}, which is read, "
                f"got {value!r} and {section.get(key)!r}"
            )


def _bare(value: Any) -> Any:
    """A rope's fields without the type that says nothing (Qwen2-VL's mrope, saved again)."""
    if not isinstance(value, Mapping):
        return value
    return {k: v for k, v in value.items() if k not in ("type", "rope_type") or v not in NO_RULE}


def interleaved_or_not(section: Section, stack: Stack) -> Stack:
    """The conventions with the pairing that the config states, where its family lets it."""
    for key in INTERLEAVED:
        value = section.get(key)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, got {value!r}")
        if value is (stack.pairing == "interleaved"):
            continue
        if key == "rope_interleave" and stack.write_pairing == "half":  # DeepSeek-V3's
            return replace(stack, pairing="half")
        raise ValueError(
            f"{key} must be {str(not value).lower()} or absent for this model, whose pairing is "
            f"{stack.pairing!r}, got {str(value).lower()}"
        )
    return stack
