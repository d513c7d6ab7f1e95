"""Usage lines of the help, and mistakes in a command line, each as one line."""

from __future__ import annotations

import math
import re
from typing import Any

import typer
from typer.core import TyperCommand

from ropewalk.checks import did_you_mean, shown

#: The class of typer's usage errors: click's, or typer's own copy of it in later versions.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Command(TyperCommand):
    """A command whose help names arguments by their metavars alone, without braces and types."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for argument in self._arguments():
            # Typer from 0.25 on appends the type to the name.
            setattr(argument, "display_type_rich", lambda ctx: None)  # noqa: B010

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage line after the command's name: `[OPTIONS] RUN [FILE]`."""
        pieces = [self.options_metavar or ""]
        for each in self._arguments():
            name = each.metavar or str(each.name).upper()
            many = "..." if each.nargs == -1 else ""
            pieces.append(f"{name}{many}" if each.required else f"[{name}]{many}")
        return pieces

    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]


def whole_number(option: str, text: str | None, most: int | None = None) -> int | None:
    """Return an option's value as an integer of at least 1, or None if it is not given."""
    if text is None:
        return None
    # int() alone would also accept digits of other scripts and "1_0".
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else 0
    if value < 1 or (most is not None and value > most):
        rule = "of at least 1" if most is None else f"from 1 to {most}"
        raise ValueError(f"{option} must be an integer {rule}, got {shown(text)}")
    return value


def number(option: str, text: str | None, most: float) -> float | None:
    """Return an option's value as a number of at least 0, or None if it is not given."""
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
    """Return the message of a usage error: what is wrong, the value received, where help is."""
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
        metavar = str(getattr(parameter, "metavar", None) or "")
        if not name.startswith("-"):
            name = metavar if metavar.isalpha() else name.upper()
        return f"{name} must be given"
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL)
    if extra:
        return f"{command} takes fewer arguments, got {shown(extra[1])} in addition"
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
