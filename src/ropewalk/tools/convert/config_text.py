"""Edits of a config.json as text: one member of an object changes, and no other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Member:
    """A member of a JSON object, and where its key and its value are in the text."""

    key: str
    begin: int
    value: int
    end: int


def set_member(text: str, path: str, key: str, value: object) -> str:
    """Return the text with a member of the object at a dotted path, added at its end if missing.

    Example:
        >>> set_member('{"a": 1}', "", "b", "half")
        '{"a": 1, "b": "half"}'
    """
    written = json.dumps(value)
    members = list(_members(text, _object_at(text, path)))
    for member in members:
        if member.key == key:
            return text[: member.value] + written + text[member.end :]
    last, before = members[-1], members[-2].end if len(members) > 1 else None
    gap = " " if before is None else text[before : last.begin].replace(",", "", 1) or " "
    return f"{text[: last.end]},{gap}{json.dumps(key)}: {written}{text[last.end :]}"


def remove_member(text: str, path: str, key: str) -> str:
    """Return the text without a member of the object at a dotted path, if it has it.

    Example:
        >>> remove_member('{"a": 1, "b": "half"}', "", "b")
        '{"a": 1}'
    """
    members = list(_members(text, _object_at(text, path)))
    for index, member in enumerate(members):
        if member.key == key:
            if index:
                return text[: members[index - 1].end] + text[member.end :]
            after = members[1].begin if len(members) > 1 else member.end
            return text[: member.begin] + text[after:]
    return text


def last_key(text: str, path: str) -> str:
    """Return the last key of the object at a dotted path."""
    return list(_members(text, _object_at(text, path)))[-1].key


def _object_at(text: str, path: str) -> int:
    """Return where the object at a dotted path begins."""
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    for key in path.split(".") if path else ():
        at = next(member.value for member in _members(text, at) if member.key == key)
    return at


def _members(text: str, at: int) -> Iterator[Member]:
    """Yield the members of the object that begins at `at`; the text is valid JSON."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)  # after the colon
        end = _DECODER.raw_decode(text, value)[1]
        yield Member(key, at, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()
