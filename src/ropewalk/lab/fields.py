"""Fields and values as people write them, in YAML or JSON, read within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 2**16  # of a config file or a value: some sixty times what all fields take
MOST_DEPTH = 20  # lists within lists


class _Loader(yaml.SafeLoader):
    """Plain YAML without aliases: a few hundred bytes of them describe gigabytes."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not read; write the value itself")
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise yaml.YAMLError(f"lists and fields may lie {MOST_DEPTH} deep in one another")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def read_fields(file: Path) -> Any:
    """Give what a YAML or JSON file holds; one that cannot be read is a ValueError naming it."""
    try:
        if not file.is_file() and file.exists():
            raise ValueError(f"config file {file} must be a regular file")
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"config file {file} can't be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"config file {file} must have at most {MOST_BYTES} bytes")
    try:
        return _load(content.decode("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise ValueError(f"config file {file} is neither YAML nor JSON: {what}") from None


def read_value(text: str) -> Any:
    """Give the value that a setting of the command line writes; what is no YAML is just a word."""
    if len(text) > MOST_BYTES:
        return text
    try:
        return _load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def check_text(text: str) -> None:
    """Refuse text that no file name or JSON file can hold."""
    if "\0" in text:
        raise ValueError("must have no NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must be text that UTF-8 can write")


def _load(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
