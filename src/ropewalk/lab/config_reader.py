"""Configs from presets, files and settings, and from run folders."""

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
    """Return a config from a preset, `fallback`, a YAML or JSON file, and `settings`.

    Later sources override earlier ones. Raises ValueError with all mistakes, and for a wrong field
    the most similar one.
    """
    given = ({} if file is None else _read_file(file)) | dict(settings or {})
    preset = given.pop("preset", preset)
    _check_word("preset", preset, tuple(PRESETS))
    task = given.get("task", "translation")
    _check_word("task", task, TASKS)
    others = [name for name in given if name in fields_of_other_tasks(task)]
    if others:
        raise ValueError(
            f"task {task!r} has no {', '.join(others)}; remove the fields of other tasks"
        )
    fields = {"preset": preset, **defaults(task, preset), **(fallback or {}), **given}
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_line(error)) from None


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


def read_run_config(run: Path) -> Config:
    """Return the config of a run folder, also of an earlier version."""
    path = run / "config.json"
    try:
        return Config.model_validate(current_fields(read_checked_json(path, "encodings", "seeds")))
    except ValidationError as error:
        raise ValueError(f"{path} has an invalid config: {first_line(error)}") from None


def with_sweep(config: Config, sweep: Mapping[str, Sequence[Any]]) -> Config:
    """Return a config with this sweep instead of its own. Raises ValueError if it is wrong."""
    try:
        return Config.model_validate({**config.model_dump(), "sweep": dict(sweep)})
    except ValidationError as error:
        raise ValueError(first_line(error)) from None


def _check_word(name: str, value: object, known: Sequence[str]) -> None:
    """Raise ValueError unless the value is one of these words; name the most similar one."""
    if not isinstance(value, str) or value not in known:
        nearest = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {shown(value)}{nearest}")


def _read_file(file: Path) -> dict[str, Any]:
    fields = read_fields(file)
    if not isinstance(fields, dict):
        raise ValueError(
            f"config file {shown_path(file)} must contain fields with values, got {shown(fields)}"
        )
    # A run's config.json may serve as a file of fields and be edited: its checksum is ignored.
    return {name: value for name, value in fields.items() if name != "checksum"}
