"""The section of a config.json for each stack, and the conventions that apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checks import ArgumentNeededError, did_you_mean, shown
from ropewalk.rotary.config.config_json import (
    JsonObject,
    by_usual_names,
    positive_int,
    positive_length,
)
from ropewalk.rotary.config.conventions import (
    CONVERTED_PAIRING_KEY,
    DEFAULT_THETA,
    PAIRING_KEYS,
    RopeConventions,
    RuleChoice,
)
from ropewalk.rotary.config.layer_types import LAYER_TYPES_KEYS
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.rope_fields import DEFAULT_ROPE_TYPES, ROPE_KEYS
from ropewalk.rotary.config.stacks import (
    BY_ARCHITECTURE,
    CLASS_SIZES,
    MULTIMODAL_MODELS,
    WITH_CLASS_SIZES,
)
from ropewalk.rotary.config.unknown_keys import check_unknown_keys, is_about_rope
from ropewalk.rotary.config.unread_types import POSITION_EMBEDDING_TYPES, UNSUPPORTED, WITHOUT_ROPE
from ropewalk.rotary.pairing import check_pairing

# Sections of a model that combines known stacks under a type of its own (LLaVA; InternVL has the
# second name of the text's section, DeepSeek-VL2 the third).
TEXT_KEYS = ("text_config", "llm_config", "language_config")
STACK_KEYS = {"text": TEXT_KEYS[0], "vision": "vision_config", "audio": "audio_config"}
PASS_PAIRING = "pass {argument}"
PAIRINGS = ("half", "interleaved")

RawSections = dict[str, tuple[JsonObject, RopeConventions]]


def model_type_of(config: JsonObject) -> str | None:
    """Return the model type of a config, or of its code, if files have none or another's."""
    architectures = config.get("architectures")
    for name in architectures if isinstance(architectures, (list, tuple)) else ():
        if isinstance(name, str) and name in BY_ARCHITECTURE:
            return BY_ARCHITECTURE[name]
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise ValueError(f"model_type must be a string, got {shown(model_type)}")
    return model_type


def text_key(config: JsonObject) -> str:
    """Return the key of the text's section in a model with a type of its own."""
    return next((key for key in TEXT_KEYS if config.get(key) is not None), TEXT_KEYS[0])


def find_sections(config: JsonObject, model_type: str | None) -> RawSections:
    """Return each stack's section as the config has it, and its model type's conventions."""
    if model_type is None:
        raise ArgumentNeededError(
            "model_type must be given, got none: it says how dimensions are paired",
            f"; or {PASS_PAIRING}",
            "pairing",
            PAIRINGS,
        )
    if model_type in UNSUPPORTED or without_rope(config, model_type):
        raise _unsupported("model_type", model_type, config)
    if model_type in MULTIMODAL_MODELS:
        return _sections_of_multimodal(config, model_type)
    if model_type in CONVENTIONS:
        # The first revision of DeepSeek-V2 has the type of earlier models.
        latent = model_type == "deepseek" and "qk_rope_head_dim" in config
        return {"text": (config, CONVENTIONS["deepseek_v2" if latent else model_type])}
    return _sections_by_own_type(config, model_type)


def _sections_of_multimodal(config: JsonObject, model_type: str) -> RawSections:
    raw_sections: RawSections = {}
    for stack, (path, section_type) in MULTIMODAL_MODELS[model_type].items():
        raw_section, conventions = _at_path(config, path), CONVENTIONS[section_type]
        if raw_section is not None and path:
            _check_top_level_agrees(config, raw_section, path)
            conventions = _with_class_sizes(model_type, section_type)
        if raw_section is None and stack == "text":
            raw_section = config  # earlier files had the text's fields at the top
        if raw_section is not None:
            raw_sections[stack] = raw_section, conventions
    if not raw_sections:
        paths = ", ".join(path for path, _ in MULTIMODAL_MODELS[model_type].values())
        raise ValueError(f"{paths} must be given for model_type {shown(model_type)}, got none")
    return raw_sections


def _sections_by_own_type(config: JsonObject, model_type: str) -> RawSections:
    """Return the sections of known types in a model that combines other models."""
    raw_sections: RawSections = {}
    unknown_key: str = "model_type"
    unknown_type: object = model_type
    unsupported: ValueError | None = None
    for stack, key in {**STACK_KEYS, "text": text_key(config)}.items():
        raw_section = _at_path(config, key)
        if raw_section is None:
            continue
        section_type = raw_section.get("model_type")
        named = section_type if isinstance(section_type, str) else ""
        none = without_rope(raw_section, named)
        if named in CONVENTIONS and not none:
            _check_top_level_agrees(config, raw_section, key)
            raw_sections[stack] = raw_section, _with_class_sizes(model_type, named)
        elif stack == "text":
            unknown_key, unknown_type = f"{key}.model_type", section_type
            if named in UNSUPPORTED or none:
                unsupported = _unsupported(unknown_key, named, raw_section)
    if raw_sections and (unsupported is None or unknown_type in WITHOUT_ROPE):
        return raw_sections
    if unsupported is not None:
        raise unsupported
    guess = did_you_mean(str(unknown_type)[:80], [*CONVENTIONS, *MULTIMODAL_MODELS])
    raise ArgumentNeededError(
        f"{unknown_key} must be one with a known pairing, got {shown(unknown_type)}{guess}",
        f"{' If not,' if guess else '; or'} {PASS_PAIRING}",
        "pairing",
        PAIRINGS,
    )


def without_rope(section: JsonObject, model_type: str | None) -> str | None:
    """Return what encodes positions in a model that has no rope, or None if it has one.

    Some types have a rope only if their config says so: by the switches of their conventions.
    """
    if model_type not in WITHOUT_ROPE:
        return None
    conventions = CONVENTIONS.get(model_type)
    if conventions is not None:
        settings = {**conventions.defaults, **_by_usual_names_and_places(section, conventions)[0]}
        if all(settings.get(key) == value for key, value in conventions.rope_switches.items()):
            return None
    stated = section.get("position_embedding_type")
    usual = WITHOUT_ROPE[model_type]
    return POSITION_EMBEDDING_TYPES.get(stated, usual) if isinstance(stated, str) else usual


def _unsupported(key: str, model_type: str, section: JsonObject) -> ValueError:
    instead = without_rope(section, model_type)
    if instead is not None:
        return ArgumentNeededError(
            f"{key} must be of a model with a rope, got {model_type!r}, which has none: {instead}",
            f"; if its own code has one after all, {PASS_PAIRING}",
            "pairing",
            PAIRINGS,
        )
    return ValueError(
        f"{key} must be one with a rope that RotarySpec can describe, got {shown(model_type)}: "
        f"{UNSUPPORTED[model_type]}"
    )


def _with_class_sizes(model_type: str, section_type: str) -> RopeConventions:
    """Return a section's conventions, with sizes that it leaves out as its class has them."""
    conventions = CONVENTIONS[section_type]
    if model_type not in WITH_CLASS_SIZES or section_type not in CLASS_SIZES:
        return conventions
    return conventions._replace(defaults={**conventions.defaults, **CLASS_SIZES[section_type]})


def _at_path(config: JsonObject, path: str) -> JsonObject | None:
    """Return the section at a dotted path, or None if it is missing."""
    raw_section = config
    for key in path.split(".") if path else ():
        inner = raw_section.get(key)
        if inner is None:
            return None
        if not isinstance(inner, Mapping):
            raise ValueError(f"{key} must be a dictionary, got {shown(inner)}")
        raw_section = inner
    return raw_section


def _check_top_level_agrees(config: JsonObject, raw_section: JsonObject, path: str) -> None:
    """Raise if the rope at the top level differs from that of the text's section, which is read."""
    if path.rpartition(".")[2] not in TEXT_KEYS:
        return
    rope_keys = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    for key in (*rope_keys, CONVERTED_PAIRING_KEY):
        at_top, inside = config.get(key), raw_section.get(key)
        if at_top is None or _without_default_type(at_top) == _without_default_type(inside):
            continue
        raise ValueError(
            f"{key} must be the same at the top level and in {path}, which is read, "
            f"got {shown(at_top)} and {shown(inside)}"
        )


def _without_default_type(value: Any) -> Any:
    """Drop a default type from a rope's fields (Qwen2-VL's mrope, saved again)."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: inner
        for key, inner in value.items()
        if key not in ("type", "rope_type") or inner not in DEFAULT_ROPE_TYPES
    }


def _by_usual_names_and_places(
    raw_section: JsonObject, conventions: RopeConventions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the keys that are not null by their usual names, and the path of those that moved.

    Raises ValueError if the rule that the config chooses is none of its type's.
    """
    section, written = by_usual_names(raw_section, conventions.aliases)
    inner = section.get(conventions.rope_section or "")
    for key, value in inner.items() if isinstance(inner, Mapping) else ():
        about_rope = is_about_rope(str(key)) or key in conventions.rope_switches
        if about_rope and value is not None and key not in section:
            section[key], written[key] = value, f"{conventions.rope_section}.{key}"
    if conventions.rule_choice is not None and "rope_scaling" not in section:
        _choose_rule(section, written, conventions.rule_choice)
    return section, written


def _choose_rule(section: dict[str, Any], written: dict[str, str], choice: RuleChoice) -> None:
    """Add the dictionary of the rule that the section chooses, as `rope_scaling`."""
    name = section.get(choice.key, next(iter(choice.places)))
    if not isinstance(name, str) or name not in choice.places:
        raise ValueError(
            f"{choice.key} must be one of {', '.join(choice.places)}, got {shown(name)}"
        )
    key = choice.places[name]
    rule = section.get(key)
    if isinstance(rule, Mapping):
        is_plain = rule.get("type") in [*choice.plain]
        section["rope_scaling"] = {**rule, "type": "default"} if is_plain else rule
        written["rope_scaling"] = written.get(key, key)


def normalize_section(
    raw_section: JsonObject, conventions: RopeConventions
) -> tuple[dict[str, Any], RopeConventions]:
    """Resolve aliases, drop nulls and check the keys; return also the conventions that apply.

    A section can change two conventions. It can set the pairing, if the family's code reads it or
    the weights were converted, and remove the family's own sizes of heads with a null.
    """
    section, written = _by_usual_names_and_places(raw_section, conventions)
    conventions = conventions._replace(written_keys=written)
    if conventions.latent_key is not None and section.get(conventions.latent_key) is False:
        conventions = without_latent_attention(conventions)
    conventions = _with_stated_pairing(section, conventions)
    converted = section.get(CONVERTED_PAIRING_KEY)
    if converted is not None:
        check_pairing(CONVERTED_PAIRING_KEY, converted)
        conventions = conventions._replace(pairing=converted)
    removed = {key for key in ("head_dim", "index_head_dim") if raw_section.get(key, ...) is None}
    if removed & conventions.defaults.keys():
        defaults = {k: value for k, value in conventions.defaults.items() if k not in removed}
        conventions = conventions._replace(defaults=defaults)
    check_unknown_keys(section, conventions)
    for key in ("max_position_embeddings", "original_max_position_embeddings"):
        if key in section:  # whether a rule reads it or not
            positive_length(written.get(key, key), section[key])
    _check_required_keys(section, conventions)
    ratio_key = conventions.rope_ratio_key
    if ratio_key is not None and ratio_key in section:
        if "rope_theta" in section:
            raise ValueError(f"rope_theta must be absent if there is a {ratio_key}, got both")
        section["rope_theta"] = DEFAULT_THETA * positive_int(section, ratio_key)
    return section, conventions


def without_latent_attention(conventions: RopeConventions) -> RopeConventions:
    """Return the conventions of a model whose `latent_key` is false: those of Llama."""
    return conventions._replace(
        head_layout="head", pairing="half", write_pairing=None, yarn_ratio=False
    )


def _with_stated_pairing(section: JsonObject, conventions: RopeConventions) -> RopeConventions:
    """Return the conventions with the pairing that the config sets, if its family allows it."""
    for key in PAIRING_KEYS:
        value = section.get(key)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, got {shown(value)}")
        if value is (conventions.pairing == "interleaved"):
            continue
        if key == conventions.pairing_key:
            return conventions._replace(pairing="interleaved" if value else "half")
        raise ValueError(
            f"{key} must be {str(not value).lower()} or absent for this model, which has pairing "
            f"{shown(conventions.pairing)}, got {str(value).lower()}"
        )
    return conventions


def _check_required_keys(section: JsonObject, conventions: RopeConventions) -> None:
    """Raise if a required key and all alternatives to it are missing."""
    rope_parameters = section.get("rope_parameters") or section.get("rope_scaling")
    if not isinstance(rope_parameters, Mapping):
        rope_parameters = {}
    by_layer_type = [value for value in rope_parameters.values() if isinstance(value, Mapping)]
    ropes = by_layer_type or [rope_parameters]
    listed = conventions.full_attention_index_key, conventions.layer_type_pattern_key
    alternatives: dict[str, set[str | None]] = {
        "layer_types": {*LAYER_TYPES_KEYS, *listed},
        "rope_parameters": {"rope_parameters", "rope_scaling"},
    }
    for key in conventions.required_keys:
        within = ROPE_KEYS.get(key) == key and all(key in rope for rope in ropes)
        if not within and not alternatives.get(key, {key}) & section.keys():
            raise ValueError(
                f"{key} must be given for this model, got none: the default of its own code is "
                f"not a plain rope"
            )
