"""Prepare docstrings for the reference pages; mkdocs.yml names this file as a griffe extension.

Docstrings describe an argument as `name: text` at the start of a line, and have one `Example:`.
Markdown would join such lines to one paragraph, so they become a list here; griffe knows the
section only as `Examples:`.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Function, Object

ARGUMENTS = re.compile(r"((?:\w+)(?:, \w+)*): ")
INDENTED = re.compile(r"\s+\S")


def as_markdown(text: str, names: set[str]) -> str:
    """Return a docstring with lines `name: text` as a list, if all names on the left are known.

    A line that is indented below such a line belongs to it; another one ends the list.
    """
    lines: list[str] = []
    in_list = False
    for line in re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE).splitlines():
        found = ARGUMENTS.match(line)
        if found and set(found[1].split(", ")) <= names:
            blank = [] if in_list or not lines or not lines[-1] else [""]
            lines += [*blank, f"- `{found[1]}`: {line[found.end() :]}"]
            in_list = True
        else:
            if in_list and line and not INDENTED.match(line):
                lines.append("")
                in_list = False
            lines.append(line)
    return "\n".join(lines)


class Docstrings(Extension):
    """Changes the text of each docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a class, with its fields and arguments, or of a function."""
        if obj.docstring is None or not isinstance(obj, Class | Function):
            return
        names = {parameter.name for parameter in getattr(obj, "parameters", ())}
        if isinstance(obj, Class):
            names |= set(obj.members)
            start = obj.members.get("__init__")
            names |= {parameter.name for parameter in getattr(start, "parameters", ())}
        obj.docstring.value = as_markdown(obj.docstring.value, names)
