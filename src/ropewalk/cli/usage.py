"""A mistake in the words of a command line, in one line: options, arguments, the command itself."""

from __future__ import annotations

import math
import re

import typer

from ropewalk.checks import did_you_mean, shown

#: What typer raises of a wrong command line; click's, or its own copy of it, as it comes.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def whole_number(option: str, text: str | None, most: int | None = None) -> int | None:
    """Read what an option is given; None where it is not."""
    if text is None:
        return None
    # int() also takes digits of other scripts and "1_0".
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else 0
    if value < 1 or (most is not None and value > most):
        rule = "of at least 1" if most is None else f"from 1 to {most}"
        raise ValueError(f"{option} must be an integer {rule}, got {shown(text)}")
    return value


def number(option: str, text: str | None, most: float) -> float | None:
    """Read what an option is given, from 0 on; None where it is not."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise ValueError(f"{option} must be a number from 0 to {most:g}, got {shown(text)}")
    return value


def in_one_line(error: Exception) -> str:
    """Say a usage error: what is wrong, what was given, where help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ropewalk"
    return f"{_mistake(error, command, context)}; see {command} --help"


def _mistake(error: Exception, command: str, context: typer.Context | None) -> str:
    message = str(getattr(error, "message", error))
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption":
        given, known = str(option), _options(context)
        return f"{command} has no option {shown(given)}{did_you_mean(given, known)}"
    if type(error).__name__ == "BadOptionUsage":
        what = "no value" if "not take" in message else "a value"
        return f"{option} takes {what}"
    if type(error).__name__ == "MissingParameter":
        parameter = getattr(error, "param", None)
        name = parameter.opts[0] if parameter is not None and parameter.opts else "an argument"
        return f"{name if name.startswith('-') else name.upper()} must be given"
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL)
    if extra:
        return f"{command} takes fewer arguments, got {shown(extra[1])} beyond them"
    wrong = re.match(r"No such command (.*?)\.?(?: Did you mean .*)?$", message, re.DOTALL)
    if wrong and context is not None:
        known = list(getattr(context.command, "commands", ()))
        given = wrong[1].strip("'\"")
        return f"command must be one of {', '.join(known)}, got {shown(given)}" + did_you_mean(
            given, known
        )
    return shown(message, 300)[1:-1]


def _options(context: typer.Context | None) -> list[str]:
    parameters = context.command.params if context else ()
    return [name for each in parameters for name in each.opts if name.startswith("--")]
