"""Configs as they come: from presets, files and settings, and out of run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ropewalk.checks import did_you_mean, shown
from ropewalk.files import read_checked_json, shown_path
from ropewalk.lab.config import Config, first_line
from ropewalk.lab.fields import read_fields, read_value
from ropewalk.lab.former_names import current_fields
from ropewalk.lab.presets import PRESETS, TASKS, defaults, fields_of_other_tasks


def make_config(
    preset: str = "default",
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    fallback: Mapping[str, Any] | None = None,
) -> Config:
    """Build a config: the task's fields in this preset, over them ``fallback``, over them a YAML or
    JSON file's, over them ``settings``.

    All mistakes are named at once, a wrong field with the nearest right one: ``ValueError``.
    """
    given = ({} if file is None else _read_file(file)) | dict(settings or {})
    preset = given.pop("preset", preset)
    _check_word("preset", preset, tuple(PRESETS))
    task = given.get("task", "translation")
    _check_word("task", task, TASKS)
    others = [name for name in given if name in fields_of_other_tasks(task)]
    if others:
        raise ValueError(
            f"task {task!r} has no {', '.join(others)}; leave out what belongs to other tasks"
        )
    fields = {"preset": preset, **defaults(task, preset), **(fallback or {}), **given}
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_line(error)) from None


def read_setting(text: str) -> tuple[str, Any]:
    """Read ``field=value`` from the command line; the value is YAML (``none`` is just a word)."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ValueError(f"a setting must read field=value, got {shown(text)}")
    field = Config.model_fields.get(name)
    if field is not None and field.annotation is str:
        return name, value  # "no" is Norwegian, and no truth value
    return name, read_value(value)


def read_run_config(run: Path) -> Config:
    """Read the config of a run folder, of an earlier version too."""
    path = run / "config.json"
    try:
        return Config.model_validate(current_fields(read_checked_json(path, "encodings", "seeds")))
    except ValidationError as error:
        raise ValueError(f"{path} holds a config that is wrong: {first_line(error)}") from None


def with_sweep(config: Config, sweep: Mapping[str, Sequence[Any]]) -> Config:
    """Give a config with this sweep instead of its own; a wrong one is a ``ValueError``."""
    try:
        return Config.model_validate({**config.model_dump(), "sweep": dict(sweep)})
    except ValidationError as error:
        raise ValueError(first_line(error)) from None


def _check_word(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse what is no word of these, null and lists included, and give the nearest."""
    if not isinstance(value, str) or value not in known:
        nearest = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {shown(value)}{nearest}")


def _read_file(file: Path) -> dict[str, Any]:
    fields = read_fields(file)
    if not isinstance(fields, dict):
        raise ValueError(
            f"config file {shown_path(file)} must hold fields and values, got {shown(fields)}"
        )
    # A run's config.json serves as a file of fields, which people change: it is not held to it.
    return {name: value for name, value in fields.items() if name != "checksum"}
