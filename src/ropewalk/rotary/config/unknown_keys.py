"""Keys of a section that are about ropes and that no reader uses: an error, unless harmless."""

from __future__ import annotations

import json
import warnings
from typing import Any

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary.config.config_json import MAX_KEYS, JsonObject, named
from ropewalk.rotary.config.conventions import (
    CONVERTED_PAIRING_KEY,
    PAIRING_KEYS,
    XPOS,
    RopeConventions,
)
from ropewalk.rotary.config.rope_fields import ROPE_KEYS

WORDS_ABOUT_ROPE = (
    "rope", "rotary", "alibi", "position_embedding_type", "position_embeddings_type", "dynamic_ntk",
    "logn", "fope", "xpos", "block_overrides",
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
    "use_logn_attn": (False,),
    "logn_attention_scale": (False,),
    "use_fope": (False,),
    "use_xpos": (False,),
    "alibi": (False,),
    "position_embedding_type": ("rope", "rotary", "absolute"),
    "no_rope_layers": ([],),
}
# What keys do that no rope can say.
REASONS = {
    "rotary_emb_scale_base": XPOS,
    "rotary_scaling_factor": "with it the model's code follows the dynamic rule; write that as "
    "rope_parameters",
    "use_rotary_pos_emb": "with it the model's code rotates the patches of an image, by a rope "
    "that is not read",
}
# Keys that change the positions, not the rope, and what reads them.
POSITION_KEYS = {
    "dual_chunk_attention_config": "vLLM then counts positions anew in each chunk, beyond the "
    "original length (arXiv 2402.17463); transformers ignores it",
}


class OtherPositionsWarning(UserWarning):
    """Some code rotates by other positions than the token's place."""


def warn_of_other_positions(section: JsonObject) -> None:
    """Warn of each key of `POSITION_KEYS` that a section has."""
    for key, effect in POSITION_KEYS.items():
        if section.get(key) is not None:
            says = f"{key} is not a part of the rope, which is read for plain positions: {effect}"
            warnings.warn(says, OtherPositionsWarning, stacklevel=4)


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
        allowed = conventions.only_values.get(key)
        if allowed is not None and value not in allowed:
            raise ValueError(
                f"{named(key)} must be absent or one of {', '.join(map(repr, allowed))} for this "
                f"model, as its code was read with no other, got {shown(value)}"
            )
        if (
            not isinstance(key, str)
            or not is_about_rope(key)
            or key in known
            or key.startswith("memory_attention_rope_")
            or any(value == harmless for harmless in HARMLESS_VALUES.get(key, ()))
        ):
            continue
        if key in REASONS:
            raise ValueError(f"{key} must be null or absent, got {shown(value)}: {REASONS[key]}")
        harmless = [json.dumps(each) for each in HARMLESS_VALUES.get(key, ())]
        rule = f"{' or '.join(harmless)} or absent" if harmless else "a key that is known"
        guess = "" if harmless else did_you_mean(key, (name for name in known if name is not None))
        raise ValueError(
            f"{named(key)} must be {rule} for this model type, got {shown(value)}"
            + (f"{guess} If not, and" if guess else "; its effect on the rope is not known; if")
            + " the model's code does not read it, pass a copy without it"
        )


def _known_keys(conventions: RopeConventions) -> set[str | None]:
    known: set[str | None] = {
        *KEYS_OF_ALL,
        *conventions.defaults,
        *conventions.rope_defaults,
        *conventions.required_keys,
        *conventions.aliases.values(),
        *conventions.rope_switches,
        *conventions.only_values,
        *(conventions.rule_choice.places.values() if conventions.rule_choice else ()),
        conventions.rule_choice.key if conventions.rule_choice else None,
        conventions.rope_section,
        conventions.pairing_key,
        conventions.rotary_dim_key,
        conventions.rope_ratio_key,
        conventions.scaled_layers_key,
    }
    for keys in conventions.keys_by_layer_type.values():
        known |= set(keys.values())
    if conventions.reads_no_rope_layers:
        known |= {"no_rope_layers", "no_rope_layer_interval"}
    return known
