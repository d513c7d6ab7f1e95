"""What commands say: rows of text, mistakes and interruptions in one line, usage lines in the help.

A user's mistake is one line on standard error and exit status 2. Other failures exit with 1, an
interruption with 130.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from ropewalk.checks import ArgumentNeededError, did_you_mean, needs, shown
from ropewalk.files import NotWrittenError, shown_path
from ropewalk.lab.stopping import CellFailed, interrupt_once

WIDTH = 100  # characters of a line
WIDEST = 40  # indent of the last column; a longer name pushes its own line to the right
LONGEST_NAME = 400  # longest word, in characters, that a message repeats in full
NO_OPTIONS: Mapping[str, str] = {}  # nobody writes to it
RESUMABLE = "interrupted; run the same command again to resume"
INTACT = "; files written before are intact"
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)  # no system could open such a path

#: The class of typer's usage errors, which has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def new_console() -> Console:
    """Return the console for results; it prints text as it is, without markup or wrapping.

    Of the processes that torchrun started, only the first prints.
    """
    return Console(soft_wrap=True, markup=False, quiet=_rank() != "0")


def _rank() -> str:
    """Return this process's number among those that torchrun started, or 0 without torchrun."""
    return os.environ.get("RANK", "0") if "TORCHELASTIC_RUN_ID" in os.environ else "0"


def print_rows(rows: Iterable[Sequence[str]], widest: int = WIDEST) -> None:
    """Print rows in aligned columns; the last column wraps below itself."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    columns = list(zip(*(row[:-1] for row in cells), strict=True))
    widths = [min(max(map(len, column)), widest) for column in columns]
    for row in cells:
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        indent = " " * sum(width + 2 for width in widths)
        print(
            textwrap.fill(
                row[-1],
                WIDTH,
                initial_indent=start,
                subsequent_indent=indent,
                break_on_hyphens=False,
            ).rstrip()
            or start.rstrip()
        )


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=1))


def print_listing(header: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Print rows under a header, or as JSON: an object for each row, with the header's words."""
    if as_json:
        print_json([dict(zip(map(str.lower, header), row, strict=True)) for row in rows])
    else:
        print_rows([header, *rows])


def print_blocks(blocks: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> None:
    """Print titles with indented rows below them, and an empty line between two blocks."""
    for place, (title, rows) in enumerate(blocks):
        print(("\n" if place else "") + one_line(title))
        if rows:
            print_rows(("", *row) for row in rows)


def summary(docstring: str | None) -> str:
    """Return the first line of a docstring, without the backticks around its code."""
    lines = (docstring or "").strip().splitlines()
    return lines[0].strip().replace("`", "") if lines else "(no description)"


@dataclass
class Interrupted:
    """The message for an interruption; a command may change it while it runs."""

    message: str

    @contextmanager
    def after_writing(self, folder: Path | None) -> Iterator[None]:
        """Say at an interruption if a folder was written, which appears complete or not at all."""
        existed = folder is None or os.path.lexists(folder)
        try:
            yield
        except KeyboardInterrupt:
            if folder is not None and folder.is_dir() and not existed:
                self.message = f"interrupted after {folder} was written completely"
            raise


@contextmanager
def errors(
    interrupted: str = "interrupted; nothing was written",
    *,
    as_json: bool = False,
    options: Mapping[str, str] = NO_OPTIONS,
) -> Iterator[Interrupted]:
    """Print a user's mistake in one line and exit with status 2; other failures exit with 1.

    SIGTERM and SIGHUP act like Ctrl-C: the command prints the yielded message and exits with 130.
    as_json: also print an object with the error on standard output. options: the command's options
    for arguments of the library that mend a mistake; no other argument is suggested.
    """

    def fail(message: object, code: int) -> NoReturn:
        _say(message)
        if as_json:
            print_json({"error": one_line(str(message))})
        raise typer.Exit(code)

    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP; nohup ignores it
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt_once)
    warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
    at_interruption = Interrupted(interrupted)
    try:
        yield at_interruption
    except ArgumentNeededError as error:
        option = options.get(error.argument)
        fail(error.what if option is None else error.worded(option), 2)
    except (ValueError, TypeError) as error:
        fail(error, 2)
    except ImportError as error:
        fail(needs("this command", error), 2)
    except KeyboardInterrupt:
        fail(at_interruption.message, 130)
    except BrokenPipeError:
        # The reader (head, less) closed the pipe; without this Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{shown_path(error.filename)}: " if error.filename else ""
        if error.errno in _NO_PATH:
            fail(f"{where}{error.strerror}; use another path", 2)
        intact = "" if isinstance(error, NotWrittenError) else INTACT
        fail(f"{where}{error.strerror or error}{intact}", 1)
    except CellFailed as error:
        fail(error, 1)


def _say(message: object) -> None:
    process = "" if _rank() == "0" else f" (process {_rank()} of torchrun)"
    with suppress(OSError):  # the terminal may be closed
        print(f"ropewalk{process}: {one_line(str(message))}", file=sys.stderr)


def one_line(text: str) -> str:
    """Return a message safe for a terminal: one line, long words cut, control characters escaped.

    File names are untrusted: an escape sequence in one would act on the terminal.
    """
    half = LONGEST_NAME // 2
    words = (w if len(w) <= LONGEST_NAME else f"{w[:half]}…{w[-half:]}" for w in text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(words))


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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; raise UsageError that names arguments beyond the last one."""
        ctx.allow_extra_args = True
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except UsageError as error:
            if getattr(error, "ctx", None) is None:
                setattr(error, "ctx", ctx)  # noqa: B010, a wrong use of an option comes without it
            raise
        if rest:
            extra = shown(" ".join(rest))
            raise UsageError(
                f"{ctx.command_path} takes fewer arguments, got {extra} in addition", ctx
            )
        return rest

    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]


class Commands(TyperGroup):
    """The commands; a wrong name is answered with the closest one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names. Raises UsageError if there is none."""
        if args and args[0] not in self.commands:
            raise UsageError(
                f"command must be one of {', '.join(self.commands)}, got {shown(args[0])}"
                f"{did_you_mean(args[0], self.commands)}",
                ctx,
            )
        return super().resolve_command(ctx, args)


def in_one_line(error: Exception) -> str:
    """Return the message of a usage error: what is wrong, the value received, where help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ropewalk"
    return f"{_mistake(error, command, context)}; see {command} --help"


def _mistake(error: Exception, command: str, context: typer.Context | None) -> str:
    """Return what is wrong. Classes are known by their names: typer has no public ones."""
    kind, parameters = type(error).__name__, context.command.params if context else ()
    option, parameter = str(getattr(error, "option_name", "")), getattr(error, "param", None)
    if kind == "NoSuchOption":
        known = [name for each in parameters for name in each.opts if name.startswith("--")]
        hint = did_you_mean(option, known)
        if any(each.name == "settings" for each in parameters):
            from ropewalk.lab.config import field_hint

            hint = field_hint(option.lstrip("-").replace("-", "_")) or hint
        return f"{command} has no option {shown(option)}{hint}"
    if kind == "BadOptionUsage":
        flag = any(option in each.opts and getattr(each, "is_flag", False) for each in parameters)
        return f"{option} takes {'no value' if flag else 'a value'}"
    message = str(getattr(error, "message", error))
    if parameter is None:
        return one_line(message)
    metavar = str(parameter.metavar or "")
    name = parameter.opts[0] if parameter.opts else "an argument"
    if not name.startswith("-"):
        name = metavar if metavar.isalpha() else name.upper()
    if kind == "MissingParameter":
        return f"{name} must be given"
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    checks: list[Any] = getattr(error.__cause__, "errors", list)()
    if low is None or not checks:
        return f"{name}: {one_line(message)}"
    kind = "an integer" if metavar == "N" else "a number"
    rule = f"of at least {low}" if high is None else f"from {low} to {high:,}"
    return f"{name} must be {kind} {rule}, got {shown(checks[0]['input'])}"
