"""Where configs come from: presets, YAML or JSON files, settings on the command line, run folders.

What people write is read within limits of size, depth and digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ropewalk.checks import check_word, shown
from ropewalk.encodings.parsing import split_at
from ropewalk.files import read_checked_json, read_text, shown_path
from ropewalk.lab.config import Config, cut, validated
from ropewalk.lab.presets import PRESETS, TASKS, defaults, fields_of_other_tasks

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


def read_fields(file: Path) -> dict[str, Any]:
    """Return the fields in a YAML or JSON file. Raises ValueError, naming it, if unreadable."""
    try:
        text = read_text(file, MOST_BYTES).removeprefix("\ufeff")  # a byte order mark
    except ValueError as error:
        raise ValueError(f"config file {error}") from None
    try:
        fields = _load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(
            f"config file {shown_path(file)} is neither YAML nor JSON: {_problem(error)}"
        ) from None
    if not isinstance(fields, dict):
        raise ValueError(
            f"config file {shown_path(file)} must contain fields with values, got {shown(fields)}"
        )
    # A run's config.json may serve as a file of fields and be edited: its checksum is ignored.
    return {name: value for name, value in fields.items() if name != "checksum"}


def read_value(text: str) -> Any:
    """Return the value of a setting on the command line; text that is not YAML stays text."""
    if len(text) > MOST_BYTES:
        return text
    try:
        return _load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _problem(error: Exception) -> str:
    """Return what is wrong and where, without PyYAML's names of streams."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, problem = error.problem_mark, cut(" ".join((error.problem or "").split()), 300)
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character U+{error.character:04X} at {error.position:,} is not allowed"
    if isinstance(error, RecursionError):
        return f"lists and fields may be nested at most {MOST_DEPTH} deep"
    return cut(" ".join(str(error).split()), 300)


def _load(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def make_config(
    preset: str = "default",
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    fallback: Mapping[str, Any] | None = None,
) -> Config:
    """Return a config from a preset, `fallback`, a YAML or JSON file, and `settings`.

    Later sources override earlier ones. Raises ValueError with all mistakes, and for a wrong field
    the most similar one.
    """
    given = ({} if file is None else read_fields(file)) | dict(settings or {})
    preset = given.pop("preset", preset)
    check_word("preset", preset, tuple(PRESETS))
    task = given.get("task", "translation")
    check_word("task", task, TASKS)
    others = [name for name in given if name in fields_of_other_tasks(task)]
    if others:
        raise ValueError(
            f"task {task!r} has no {', '.join(others)}; remove the fields of other tasks"
        )
    return validated({"preset": preset, **defaults(task, preset), **(fallback or {}), **given})


def read_setting(text: str) -> tuple[str, Any]:
    """Return name and value of a `field=value` setting; the value is YAML (`none` is a string)."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ValueError(f"a setting must read field=value, got {shown(text)}")
    field = Config.model_fields.get(name)
    if field is not None and field.annotation is str:
        return name, value  # YAML reads "no", Norwegian, as false
    return name, read_value(value)


def read_settings(texts: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `field=value` settings. Raises ValueError if a field gets two different values.

    options: the values of options such as --seeds, by the name of their field.
    """
    given: dict[str, Any] = {}
    written: dict[str, str] = {}
    for text in texts:
        name, setting = read_setting(text)
        given[name] = setting
        value = text.partition("=")[2].strip()
        option = options.get(name, value)
        if written.setdefault(name, value) != value:
            both = f"{shown(f'{name}={written[name]}')} and {shown(text)}"
        elif option != value and (name, option) != ("preset", "default"):  # which it always has
            both = f"{shown(text)} and {shown(f'--{name} {option}')}"
        else:
            continue
        raise ValueError(f"{shown(name)} must be given once, got {both}; remove one of them")
    return given


def read_run_config(run: Path) -> Config:
    """Return the config of a run folder."""
    path = run / "config.json"
    fields = read_checked_json(path, "encodings", "seeds")
    return validated(fields, f"{path} has an invalid config: ")


def with_sweep(config: Config, sweep: Mapping[str, Sequence[Any]]) -> Config:
    """Return a config with this sweep instead of its own. Raises ValueError if it is wrong."""
    return validated({**config.model_dump(), "sweep": dict(sweep)})


def read_sweep(texts: Iterable[str], option: str = "--sweep") -> dict[str, list[Any]]:
    """Return a sweep from `field=value,value,…`; commas in parentheses do not split."""
    sweep: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"{option} must have the form field=value,value,…, got {shown(text)}")
        if name in sweep:
            raise ValueError(
                f"{option} must name {shown(name)} once, got it twice; write its values in one list"
            )
        words = name == "attention"  # names of attentions are kept as written
        each = [value.strip() for value in split_at(values, ",")]
        if "" in each:
            raise ValueError(f"{option} must have no empty value, got {shown(text)}")
        sweep[name] = each if words else [read_value(value) for value in each]
    return sweep
