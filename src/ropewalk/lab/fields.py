"""Fields and values that people write in YAML or JSON, read within limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ropewalk.checks import shown
from ropewalk.files import shown_path

MOST_BYTES = 2**16  # of a config file or a value: about 60 times the size of all fields
MOST_DEPTH = 20  # of nested lists and fields
MOST_DIGITS = 1_000  # of a number: Python refuses 4,300 of them


class _Loader(yaml.SafeLoader):
    """YAML without aliases (a few hundred bytes can describe gigabytes) and without tags.

    1:30 is text (YAML 1.1 reads 90), 010 is text and not 8, and dates are text.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported; write the value itself")
        tag = getattr(self.peek_event(), "tag", None)  # type: ignore[no-untyped-call]
        if tag is not None:  # constructors of tags may raise any exception
            written = tag.replace("tag:yaml.org,2002:", "!!")
            raise yaml.YAMLError(f"tags ({shown(written)}) are not supported; write the value only")
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise yaml.YAMLError(f"lists and fields may be nested at most {MOST_DEPTH} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        values = super().construct_mapping(node, deep=True)
        if len(values) < len(node.value):
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=True)
                value = self.construct_object(value_node, deep=True)
                if key in values and value != values[key]:
                    raise yaml.YAMLError(
                        f"{shown(key)} must be given once, got {shown(value)} and "
                        f"{shown(values[key])}"
                    )
        return values

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > MOST_DIGITS:
            raise yaml.YAMLError(
                f"a number must have at most {MOST_DIGITS:,} digits, got {len(node.value):,}"
            )
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*|0x[0-9a-fA-F]+)\Z"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"([-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"
    ),
    list("-+0123456789."),
)


def read_fields(file: Path) -> Any:
    """Return the content of a YAML or JSON file. Raises ValueError, naming it, if unreadable."""
    name = shown_path(file)
    try:
        if not file.is_file() and file.exists():
            raise ValueError(f"config file {name} must be a regular file")
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"config file {name} can't be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"config file {name} must have at most {MOST_BYTES} bytes")
    try:
        return _load(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"config file {name} is not UTF-8 at byte {error.start}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(
            f"config file {name} is neither YAML nor JSON: {_problem(error)}"
        ) from None


def read_value(text: str) -> Any:
    """Return the value of a setting on the command line; text that is not YAML stays text."""
    if len(text) > MOST_BYTES:
        return text
    try:
        return _load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def check_text(text: str) -> None:
    """Raise ValueError for text that cannot be in a file name or a JSON file."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must be valid UTF-8")


def _problem(error: Exception) -> str:
    """Return what is wrong and where, without PyYAML's names of streams."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {_cut(error.problem or '')}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character U+{error.character:04X} at {error.position:,} is not allowed"
    if isinstance(error, RecursionError):
        return f"lists and fields may be nested at most {MOST_DEPTH} deep"
    return _cut(str(error))


def _cut(text: str, most: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _load(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
