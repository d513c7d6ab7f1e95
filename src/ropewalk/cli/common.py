"""Code that commands share: paths, the config of a command line, and how a command fails.

A user's mistake is one line on standard error and exit status 2.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from ropewalk.checks import ArgumentNeededError, shown
from ropewalk.files import NotWrittenError, shown_path
from ropewalk.lab.stopping import interrupt_once

if TYPE_CHECKING:
    from ropewalk.encodings import ImportedSource
    from ropewalk.lab.config import Config

MOST_PATH_BYTES = 4_096  # the limit of Linux
INTACT = "; files written before are intact"
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)  # no system could open such a path


def new_console() -> Console:
    """Return the console for results; it prints text as it is, without markup or wrapping.

    Of the processes that torchrun started, only the first prints.
    """
    return Console(soft_wrap=True, markup=False, quiet=_rank() != "0")


def _rank() -> str:
    """Return this process's number among those that torchrun started, or 0 without torchrun."""
    return os.environ.get("RANK", "0") if "TORCHELASTIC_RUN_ID" in os.environ else "0"


def path_of(option: str, text: str | None) -> Path | None:
    """Return a path from the command line. Raises ValueError if no system could open it."""
    if text is None:
        return None
    if not text:
        raise ValueError(
            f"{option} must name a path, got an empty one; use . for the working directory"
        )
    size = len(os.fsencode(text))
    if size > MOST_PATH_BYTES:
        raise ValueError(
            f"{option} must be a path of at most {MOST_PATH_BYTES:,} bytes, got {size:,}: "
            f"{shown(text)}; use a shorter path"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{option} must be valid UTF-8, got {shown(text)}; use another path"
        ) from None
    return Path(text)


def import_all(sources: list[str] | None) -> list[ImportedSource]:
    """Import every --import source; its encodings are then in the registry."""
    from ropewalk.encodings import import_encodings

    for source in sources or []:
        path_of("--import", source)
    return [import_encodings(source) for source in sources or []]


def names_of(texts: list[str] | None) -> list[str]:
    """Return names of encodings as the config writes them: without white space."""
    return ["".join(text.split()) for text in texts or ()]


def config_of(
    preset: str,
    file: str | None,
    settings: list[str] | None,
    fallback: Mapping[str, Any] | None = None,
    imports: list[str] | None = None,
    sweep: list[str] | None = None,
    **options: Any,
) -> Config:
    """Return the config that options, a file and `field=value` settings describe."""
    from ropewalk.lab.config_sources import make_config, read_sweep
    from ropewalk.machine import pick_device

    options = {name: value for name, value in options.items() if value is not None}
    given = _given_once(settings or [], {**options, "preset": preset}) | options
    for part in str(given.get("data", "")).split(","):  # may be files, separated by commas
        path_of("--data", part or None)
    if imports:
        given["imports"] = import_all(imports)
    if sweep:
        swept = read_sweep(sweep)
        for name in ("sweep", *swept):
            if name in given:
                raise ValueError(
                    f"{shown(name)} must be given once, got a value and --sweep; remove one of them"
                )
        given["sweep"] = swept
    config = make_config(preset, path_of("--config", file), given, fallback)
    pick_device(config.device)  # fails here, before any work on the data
    return config


def _given_once(settings: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings. Raises ValueError if a field is given two different values."""
    from ropewalk.lab.config_sources import read_setting

    given: dict[str, Any] = {}
    written: dict[str, str] = {}
    for text in settings:
        name, given_value = read_setting(text)
        value = text.partition("=")[2].strip()
        if written.setdefault(name, value) != value:
            raise ValueError(
                f"{shown(name)} must be given once, got {shown(f'{name}={written[name]}')} and "
                f"{shown(text)}; remove one of them"
            )
        option = options.get(name, value)
        # --preset has a value even if the user gave none.
        if option != value and (name, option) != ("preset", "default"):
            raise ValueError(
                f"{shown(name)} must be given once, got {shown(text)} and "
                f"{shown(f'--{name} {option}')}; remove one of them"
            )
        given[name] = given_value
    return given


LONGEST_NAME = 400  # longest word, in characters, that a message repeats in full
#: Options for arguments of the library that have another name there.
OPTIONS = {"original": "--original", "read_as": "--from"}
RESUMABLE = "interrupted; run the same command again to resume"


class Interrupted:
    """The message for an interruption; a command may change it while it runs."""

    def __init__(self, message: str) -> None:
        self.message = message


@contextmanager
def errors(interrupted: str = "interrupted; nothing was written") -> Iterator[Interrupted]:
    """Print a user's mistake in one line and exit with status 2; other failures exit with 1.

    SIGTERM and SIGHUP act like Ctrl-C: the command prints the yielded message and exits with 130.
    """
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP; nohup ignores it
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt_once)
    warnings.showwarning = _warn
    at_interruption = Interrupted(interrupted)
    try:
        yield at_interruption
    except ArgumentNeededError as error:
        option = OPTIONS.get(error.argument)
        _fail(error if option is None else error.worded(option), 2)
    except (ValueError, TypeError) as error:
        _fail(error, 2)
    except ImportError as error:
        _fail(f"{error}; install the extra 'lab': pip install 'ropewalk[lab]'", 2)
    except KeyboardInterrupt:
        _fail(at_interruption.message, 130)
    except BrokenPipeError:
        # The reader (head, less) closed the pipe; without this Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{shown_path(error.filename)}: " if error.filename else ""
        if error.errno in _NO_PATH:
            _fail(f"{where}{error.strerror}; use another path", 2)
        intact = "" if isinstance(error, NotWrittenError) else INTACT
        _fail(f"{where}{error.strerror or error}{intact}", 1)
    except RuntimeError as error:
        if type(error).__name__ != "CellFailed":
            raise
        _fail(error, 1)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {message}")


def _fail(message: object, code: int) -> NoReturn:
    _say(message)
    raise typer.Exit(code)


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
