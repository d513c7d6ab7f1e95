"""`ropewalk encodings`, `tasks` and `fields`: lists of what the other commands accept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from ropewalk.checks import shown
from ropewalk.cli.messages import WIDTH, errors, print_listing, print_rows, summary
from ropewalk.cli.options import AsJson, Imports, Preset, import_all, option

OneTask = Annotated[str | None, option("TASK", "List only the fields of this task.")]


def encodings(imports: Imports = None, as_json: AsJson = False) -> None:
    """List every encoding with its arguments and their defaults.

    Includes the encodings of --import and of installed packages. Write arguments in parentheses,
    as in rotary(theta=1e6). Join encodings by + to use them together, as in sinusoidal+rotary.
    With cross=True, an encoding that acts in attention acts in cross-attention too.
    """
    with errors(as_json=as_json):
        from ropewalk.encodings import REGISTRY
        from ropewalk.encodings.outside import add_installed, installed_names

        import_all(imports)
        broken = {}
        for name in installed_names():
            if name not in REGISTRY:
                try:
                    add_installed(name)
                except ValueError as error:
                    broken[name] = str(error)
        rows = [(name, *_described(made)) for name, made in REGISTRY.items()]
        rows += [(name, error, []) for name, error in broken.items()]
        if as_json:
            print_listing(("ENCODING", "DESCRIPTION", "ARGUMENTS"), rows, as_json=True)
            return
        pairs = (((name, what), ("", ", ".join(given))) for name, what, given in rows)
        print_rows(line for pair in pairs for line in pair if line[1])


def tasks(as_json: AsJson = False) -> None:
    """List every task with its data, score and description.

    DATA is what the task uses if --data is not given; SCORE is the score of the report's headline.
    """
    with errors(as_json=as_json):
        from ropewalk.lab.config_sources import make_config
        from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
        from ropewalk.lab.presets import fields_of_other_tasks
        from ropewalk.lab.tasks import CLASSES

        rows = []
        for name, task in CLASSES.items():
            generated = "data" in fields_of_other_tasks(name)
            data = "generated" if generated else make_config(settings={"task": name}).data
            sequence = SEQUENCE_TASKS.get(name)
            what = summary(task.__doc__) if sequence is None else sequence.description
            rows.append((name, data, task.metrics[0].name, what))
        print_listing(("TASK", "DATA", "SCORE", "DESCRIPTION"), rows, as_json=as_json)


def fields(task: OneTask = None, preset: Preset = "default", as_json: AsJson = False) -> None:
    """List every field of a config with its default.

    Each line starts with FIELD=VALUE as the command line takes it. With --task, only the fields of
    that task are listed. Without --task, the fields of translation come first; the other fields
    follow, each with its default in the first task that has it.
    """
    with errors(as_json=as_json):
        from ropewalk.lab.config import Config, rule_of

        rows = []
        for name, value in _defaults(task, preset).items():
            field = Config.model_fields[name]
            rows.append((name, value, rule_of(field), str(field.description)))
        if as_json:
            print_listing(("FIELD", "DEFAULT", "RULE", "DESCRIPTION"), rows, as_json=True)
            return
        settings = [f"{name}={_written(value)}" for name, value, *_ in rows]
        room = WIDTH - 2 - max(map(len, settings))
        lines = []
        for setting, (*_, rule, described) in zip(settings, rows, strict=True):
            both = f"{described} ({rule})"
            lines.append((setting, both if len(both) <= room and rule != "text" else described))
        print_rows(lines)


def _described(made: Callable[..., Any]) -> tuple[str, list[str]]:
    documented = made.func if isinstance(made, partial) else made  # its own is functools.partial's
    return summary(documented.__doc__), list(_arguments(made))


def _arguments(made: Callable[..., Any]) -> Iterator[str]:
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except ValueError:  # a callable in C may have no signature
        return
    for each in parameters[1:]:  # the first is the shape
        if each.kind is each.VAR_KEYWORD:
            yield f"and the {each.name.replace('_', ' ')}"  # as "fields of rule"
        elif each.default is each.empty:
            yield f"{each.name} (must be given)"
        else:
            default = each.default
            yield f"{each.name}={default if isinstance(default, str) else shown(default, 40)}"


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
