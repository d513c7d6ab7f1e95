"""The keys of a section by their usual names and places, and where its file has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.config_json import JsonObject
from ropewalk.rotary.config.conventions import RopeConventions, RuleChoice
from ropewalk.rotary.config.unknown_keys import is_about_rope


def by_usual_names(
    raw_section: JsonObject, conventions: RopeConventions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the keys that are not null by their usual names, and the path of those that moved.

    Raises ValueError if a key is there by two names, with different values, and if the rule that
    the config chooses is none of its type's.
    """
    section: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in raw_section.items():
        usual = conventions.aliases.get(key, key)
        if value is None:
            continue
        if usual in section and section[usual] != value:
            raise ValueError(
                f"{key} must be the same as {written.get(usual, usual)}, {shown(section[usual])}, "
                f"got {shown(value)}; remove one of them"
            )
        section[usual] = value
        if usual != key:
            written[usual] = key
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
