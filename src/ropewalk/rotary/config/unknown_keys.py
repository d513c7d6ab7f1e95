"""Keys of a section that are about ropes and that no reader uses: an error, unless harmless."""

from __future__ import annotations

from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.config_json import MAX_KEYS, JsonObject, named
from ropewalk.rotary.config.conventions import (
    CONVERTED_PAIRING_KEY,
    PAIRING_KEYS,
    RopeConventions,
)
from ropewalk.rotary.config.rope_fields import ROPE_KEYS

WORDS_ABOUT_ROPE = (
    "rope", "rotary", "alibi", "position_embedding_type", "position_embeddings_type", "dynamic_ntk",
)  # fmt: skip
KEYS_OF_ALL = {
    *ROPE_KEYS,
    *PAIRING_KEYS,
    CONVERTED_PAIRING_KEY,
    "rope_parameters",
    "rope_scaling",
    "qk_rope_head_dim",
    "rotary_dim",
}
# Keys that do not change frequencies and pairs as long as they have one of these values.
HARMLESS_VALUES: dict[str, tuple[Any, ...]] = {
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


def is_about_rope(key: str) -> bool:
    """Return whether a key has a word in it that is about ropes."""
    return any(word in key for word in WORDS_ABOUT_ROPE)


def check_unknown_keys(section: JsonObject, conventions: RopeConventions) -> None:
    """Raise for a key of the section that is about ropes and not read for this family."""
    known = _known_keys(conventions)
    if len(section) > MAX_KEYS:
        raise ValueError(
            f"config must have at most {MAX_KEYS:,} keys in a section, got {len(section):,}"
        )
    for key, value in section.items():
        if (
            not isinstance(key, str)
            or not is_about_rope(key)
            or key in known
            or key.startswith("memory_attention_rope_")
            or any(value == harmless for harmless in HARMLESS_VALUES.get(key, ()))
        ):
            continue
        raise ValueError(
            f"{named(key)} must be absent, since its effect on the rope of this model is not "
            f"known, got {shown(value)}"
        )


def _known_keys(conventions: RopeConventions) -> set[str | None]:
    known: set[str | None] = {
        *KEYS_OF_ALL,
        *conventions.defaults,
        *conventions.rope_defaults,
        *conventions.required_keys,
        *conventions.aliases.values(),
        *conventions.rope_switches,
        conventions.rotary_dim_key,
        conventions.rope_ratio_key,
        conventions.scaled_layers_key,
    }
    for keys in conventions.keys_by_layer_type.values():
        known |= set(keys.values())
    if conventions.reads_no_rope_layers:
        known |= {"no_rope_layers", "no_rope_layer_interval"}
    return known
