"""The rule of each config field in words, and all mistakes of a config in one line."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ropewalk.checks import did_you_mean, shown
from ropewalk.lab.former_names import FIELDS

MOST_MISTAKES = 30  # in one message


def in_one_line(error: ValidationError, fields: Mapping[str, FieldInfo]) -> str:
    """Return all mistakes in one line, or the first ones if there are many."""
    mistakes = error.errors()
    said = [_message(mistake, fields) for mistake in mistakes[:MOST_MISTAKES]]
    more = len(mistakes) - len(said)
    return "; ".join([*said, f"and {more} more"] if more else said)


def rule_of(field: FieldInfo) -> str:
    """Return what a field must be, such as "an integer from 1 to 100"."""
    return _rule(field.annotation, field.metadata)


def _message(mistake: Any, fields: Mapping[str, FieldInfo]) -> str:
    name, got = (mistake["loc"] or ("",))[0], shown(mistake["input"])
    if mistake["type"] == "invalid_key":
        return f"config keys must be text, got {got}"
    if mistake["type"] == "extra_forbidden":
        if name in FIELDS:
            return f"{name!r} is not a field of a config; it is now {FIELDS[name]!r}"
        return f"{shown(name)} is not a field of a config{did_you_mean(name, fields)}"
    message = mistake["msg"].removeprefix("Value error, ")
    if not name:
        return str(message)
    if mistake["type"] != "value_error":  # replaces pydantic's less precise words
        message = f"must be {rule_of(fields[name])}"
    return f"{name} {message}, got {got}"


def _rule(kind: Any, bounds: Iterable[Any] = (), several: bool = False) -> str:
    """Return what a value of this type must be, within these bounds; `several`: in a list."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        marks = [mark for each in inner[1:] for mark in getattr(each, "metadata", [each])]
        return _rule(inner[0], [*marks, *bounds], several)
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in inner if each is not types.NoneType]
        return " or ".join([_rule(each, bounds, several) for each in kinds] + ["null"])
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin is tuple:
        return _rule(inner[0], bounds, several=True)
    if origin is dict:
        return "fields, each with a list of values"
    if kind is bool:
        return "true or false"
    if kind is int:
        return ("integers" if several else "an integer") + _bounds(bounds, whole=True)
    if kind is float:
        return ("finite numbers" if several else "a finite number") + _bounds(bounds)
    if kind is str:
        return "words, or a list of them" if several else "text"
    return "a list as in a run's config.json"


def _bounds(bounds: Iterable[Any], whole: bool = False) -> str:
    """Return the bounds of annotated_types' marks in words; bounds of integers are inclusive."""
    held = {name: getattr(each, name) for each in bounds for name in _SIDES if hasattr(each, name)}
    if whole:
        return f" from {held['ge']} to {held['lt'] - 1 if 'lt' in held else held['le']}"
    least = f" above {held['gt']:g}" if "gt" in held else f" of at least {held['ge']:g}"
    most = f"below {held['lt']:g}" if "lt" in held else f"at most {held['le']:g}"
    return f"{least} and {most}"


_SIDES = ("gt", "ge", "lt", "le")
