"""`ropewalk fields`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ropewalk.cli.common import errors
from ropewalk.cli.listing import WIDTH, print_rows
from ropewalk.cli.options import Preset

OneTask = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="List only the fields of this task.")
]


def fields(task: OneTask = None, preset: Preset = "default") -> None:
    """List every field of a config with its default.

    Each line starts with FIELD=VALUE as the command line takes it. With --task, only the fields of
    that task are listed. Without --task, the fields of translation come first; the other fields
    follow, each with its default in the first task that has it.
    """
    with errors():
        from ropewalk.lab.config import Config, rule_of

        settings = {name: f"{name}={_written(v)}" for name, v in _defaults(task, preset).items()}
        room = WIDTH - 2 - max(map(len, settings.values()))
        rows = []
        for name, setting in settings.items():
            field = Config.model_fields[name]
            described, rule = str(field.description), rule_of(field)
            both = f"{described} ({rule})"
            rows.append((setting, both if len(both) <= room and rule != "text" else described))
        print_rows(rows)


def _defaults(task: str | None, preset: str) -> dict[str, Any]:
    """Return the fields and their values in a preset: of one task, or of all that have it."""
    from ropewalk.lab.config_sources import make_config
    from ropewalk.lab.presets import TASKS, fields_of_other_tasks, presets_of

    found: dict[str, Any] = {}
    several = [each for each in TASKS if preset in presets_of(each)]
    for each in several if task is None and several else [task or TASKS[0]]:
        config = make_config(preset, None, {"task": each})
        others = fields_of_other_tasks(each)
        found |= {name: v for name, v in config if name not in others and name not in found}
    return found


def _written(value: Any) -> str:
    """Write a value so that it reads back the same from FIELD=VALUE."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "[]"
    return str(value)
