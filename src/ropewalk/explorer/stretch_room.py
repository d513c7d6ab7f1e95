"""The room Stretch: what `tools.extend` says about a config, as JSON for the page.

The page computes frequencies itself, so the answer has each rope's theta and the fields of each
rule, and only for ropes that the page cannot compute their wavelengths.
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from ropewalk.checks import ArgumentNeededError, ranges
from ropewalk.explorer.questions import number_of, text_of
from ropewalk.rotary.config.config_json import MAX_LENGTH, JsonObject
from ropewalk.rotary.scaling import Proportional, Scaling, YaRN
from ropewalk.tools.extend import Extension, RuleResult, extend
from ropewalk.tools.extend.config_block import TextConfig, text_config
from ropewalk.tools.extend.engine_fragments import fragments
from ropewalk.tools.extend.extend import OriginalNote
from ropewalk.tools.extend.recommended_rule import REMARKS
from ropewalk.tools.inspect.inspect_model import inspect, read_with_repairs
from ropewalk.tools.inspect.inspect_report import fields_text
from ropewalk.tools.inspect.rope_facts import rule_fields, to_plain

MOST_TEXT = 20_000  # characters of a pasted config
TIMES = (2, 4, 8)  # targets of the exported page, relative to the context of today

#: Fields of rules as rules.js names them.
PAGE_NAMES = {
    "beta_fast": "betaFast", "beta_slow": "betaSlow", "truncate": "truncate",
    "mscale": "mscale", "mscale_all_dim": "mscaleAllDim",
    "low_freq_factor": "lowFreq", "high_freq_factor": "highFreq", "fraction": "fraction",
}  # fmt: skip


def extend_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return what `extend` says about a pasted config.

    question: `config`, its text; `to`, the new context; `original`, the context in training, or
    0 if the config states it. An impossible `to` is a `mistake` of the answer, which still
    describes the ropes. Raises ValueError if the config cannot be read or has no rope to scale.
    """
    text = text_of(question, "config", MOST_TEXT)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError("config must be an object of JSON: { … }")
    to = number_of(question, "to", 2, MAX_LENGTH)
    original = number_of(question, "original", 0, MAX_LENGTH) or None
    return _answer(config, [to], original)


def _worded(error: ValueError) -> str:
    """Return a message with advice that a reader of the page can follow."""
    if not isinstance(error, ArgumentNeededError):
        return str(error)
    if error.argument == "original":
        return error.worded("the field original length")
    return f"{error.what}; set model_type to one whose code pairs dimensions the same way"


def _note(note: str) -> str:
    if not isinstance(note, OriginalNote):
        return note
    return (
        f"{note.what}: choose a config.json that you paste, and set its original length to "
        f"{note.original}"
    )


def stretch_data() -> dict[str, Any]:
    """Return the answers for the published configs, at a few targets each."""
    found = {}
    for name, each in published().items():
        today = extend(each["config"], MAX_LENGTH).current_length
        found[f"stretch-{name}"] = _answer(each["config"], [times * today for times in TIMES])
    return found


def _answer(config: JsonObject, targets: list[int], original: int | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"mistake": None, "targets": {}}
    try:
        found = [extend(config, to, original=original) for to in targets]
    except ValueError as error:
        told["mistake"] = _worded(error)
        try:
            found = [extend(config, MAX_LENGTH, original=original)]
        except ValueError as other:
            raise ValueError(_worded(other)) from None
    reading = read_with_repairs(config, None)
    report = inspect(reading.config)
    text = text_config(reading.config, reading.model, report.max_length_key, None)
    first = found[0]
    told |= {
        "model_type": first.model_type,
        "original": first.original_length,
        "today": first.current_length,
        "notes": [_note(note) for note in first.notes],
        "ropes": _ropes(first),
        "methods": {each.method: _method(each, first, text) for each in first.results},
    }
    if told["mistake"] is None:
        told["targets"] = {each.to: _target(each, text) for each in found}
    return told


def _ropes(found: Extension) -> list[dict[str, Any]]:
    """Return each rope; `given` has the numbers of the rules that the page cannot compute."""
    return [
        {
            "layers": ranges(plain.layers),
            "theta": plain.theta,
            "rotaryDim": 2 * len(plain.growth),
            "given": {
                each.method: {
                    "wavelengths": each.numbers[place].wavelengths_after,
                    "amplitude": each.numbers[place].amplitude,
                }
                for each in found.results
                if each.numbers and (each.method == "longrope" or not _usual(found, place))
            },
        }
        for place, plain in enumerate(found.results[0].numbers)
    ]


def _usual(found: Extension, place: int) -> bool:
    """Return whether pair i of the rope has the wavelength 2π · theta^(2i/R), or is p-RoPE's."""
    plain = found.results[0].numbers[place]
    count = len(plain.wavelengths_before)
    return all(
        math.isinf(each) or math.isclose(each, 2 * math.pi * plain.theta ** (i / count))
        for i, each in enumerate(plain.wavelengths_before)
    )


def _method(result: RuleResult, found: Extension, text: TextConfig) -> dict[str, Any]:
    rule = result.rule
    if isinstance(rule, YaRN) and text.conventions is not None:
        rule = dataclasses.replace(rule, **text.conventions.yarn_fields)
    page: dict[str, Any] | None = {"name": "none"} if result.method == "none" else None
    if rule is not None:
        name = "proportional" if isinstance(rule, Proportional) else result.method
        page = {"name": name, **_page_fields(rule)}
    elif page is not None and math.isinf(max(found.results[0].numbers[0].wavelengths_before)):
        linear = found.result("linear").rule  # p-RoPE, whose factor `linear` changes
        assert linear is not None
        page = {"name": "proportional", **_page_fields(linear), "factor": 1}
    return {"rule": page, "refused": result.refused}


def _page_fields(rule: Scaling) -> dict[str, Any]:
    fields = ((name, getattr(rule, own, None)) for own, name in PAGE_NAMES.items())
    return {name: value for name, value in fields if value is not None}


def _target(found: Extension, text: TextConfig) -> dict[str, Any]:
    usable = [each for each in found.results if each.usable]
    return {
        "recommendation": to_plain(found.recommendation),
        "parameters": {
            each.method: fields_text(rule_fields(each.rule)) + REMARKS.get(each.method, "")
            for each in usable
        },
        "fragments": {
            each.method: to_plain(fragments(text, each, found.original_length, found.to))
            for each in usable
        },
    }


@cache
def published() -> dict[str, dict[str, Any]]:
    """Return the name on the hub and the config of each model, by its short name."""
    text = (Path(__file__).parent / "page" / "published.js").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text.partition(" = ")[2].rstrip(";\n"))
    return found
