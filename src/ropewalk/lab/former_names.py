"""Names that earlier versions used in the files of a run, and the current ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

#: Fields of a config: former name -> name.
FIELDS = {
    "length": "train_length",
    "multiples": "length_multiples",
    "tested": "test_examples",
    "masked": "mask_ratio",
    "longest": "max_tokens",
}
#: Arguments of encodings: (encoding, former name) -> name.
ARGUMENTS = {
    ("learned", "longest"): "max_positions",
    ("tupe", "longest"): "max_positions",
    ("xpos", "centre"): "center",
}
#: Keys of results.json: former name -> name.
RESULTS = {"tested": "tested_metric"}


def current_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a config under their current names."""
    named = {FIELDS.get(name, name): value for name, value in fields.items()}
    if isinstance(named.get("encodings"), list):
        named["encodings"] = [
            current_encoding(each) if isinstance(each, str) else each for each in named["encodings"]
        ]
    return named


def current_encoding(text: str) -> str:
    """Return an encoding, or a text that names some, with current names of arguments."""
    for (encoding, former), name in ARGUMENTS.items():
        text = _rename_argument(text, encoding, former, name)
    return text


def former_encoding(text: str) -> str:
    """Return an encoding as an earlier version wrote it; old folders are named after that."""
    for (encoding, former), name in ARGUMENTS.items():
        text = _rename_argument(text, encoding, name, former)
    return text


def current_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a checkpoint, with current names in its config and encoding."""
    named = dict(facts)
    if isinstance(named.get("config"), dict):
        named["config"] = current_fields(named["config"])
    if isinstance(named.get("encoding"), str):
        named["encoding"] = current_encoding(named["encoding"])
    return named


def current_evaluation(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a cell's file of a split under current names."""
    named = {**facts, "decoding": current_fields(facts.get("decoding", {}))}
    if "no_result" in named:  # the reason may name an encoding
        named["no_result"] = current_encoding(named["no_result"])
    return named


def current_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of results.json under current names; its command runs again."""
    named = current_facts({RESULTS.get(key, key): value for key, value in results.items()})
    if "encodings" in named:  # reasons for "no_result" may also name encodings
        named["encodings"] = _current_texts(named["encodings"])
    if "command" in named:
        lines = named["command"].split("\n")  # results in parts have one line per part
        named["command"] = "\n".join(map(current_command, lines))
    if "parts" in named:
        named["parts"] = [_current_part(part) for part in named["parts"]]
    return named


def _current_part(part: Mapping[str, Any]) -> dict[str, Any]:
    cells = {current_encoding(name): seeds for name, seeds in part["cells"].items()}
    return {**part, "command": current_command(part["command"]), "cells": cells}


def current_command(command: str) -> str:
    """Return a command line with current names in its FIELD=VALUE settings and encodings."""
    words = shlex.split(command)
    settings = (word.partition("=") for word in words)
    named = [
        current_encoding(f"{FIELDS.get(name, name) if equals else name}{equals}{value}")
        for name, equals, value in settings
    ]
    return command if named == words else shlex.join(named)


def _current_texts(value: Any) -> Any:
    if isinstance(value, str):
        return current_encoding(value)
    if isinstance(value, list):
        return [_current_texts(each) for each in value]
    if isinstance(value, dict):
        return {key: _current_texts(each) for key, each in value.items()}
    return value


def _rename_argument(text: str, encoding: str, name: str, new: str) -> str:
    return re.sub(
        rf"\b{encoding}\([^()]*\)", lambda call: re.sub(rf"\b{name}\b(?=\s*=)", new, call[0]), text
    )
