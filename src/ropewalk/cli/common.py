"""What commands share: options, the config they describe, and how a failure ends.

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
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.lab.ending import interrupt_once

if TYPE_CHECKING:
    from ropewalk.encodings import ImportedSource
    from ropewalk.lab.config import Config

MOST_PATH_BYTES = 4_096  # of a path: Linux takes no longer one
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)  # what is asked for can be nowhere

Preset = Annotated[
    str,
    typer.Option(
        help="quick or default; of translation also multi30k-cpu, multi30k-base and annotated."
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="translation, masked-lm, causal-lm, copy, reverse, sort, addition, recall, passkey or "
        "count; compare also takes all.",
    ),
]
Encodings = Annotated[
    str | None,
    typer.Option("--encodings", "--encoding", help="Such as sinusoidal,rotary(theta=1e6)."),
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", "--seed", help="Of parameters, data order and dropout: 1,2,3."),
]
Attention = Annotated[
    str | None, typer.Option(help="softmax, or linear attention: performer or elu.")
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="PATH", help="YAML or JSON file of fields, over the preset's."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="phrases, multi30k, a folder of train.de, train.en, …, or SOURCE,TARGET; of language "
        "modelling tales, text files, a folder of them, or the NAME of ropewalk fetch."
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py|MODULE",
        help="Python that registers encodings of your own, a file or an installed module; may be "
        "given several times. It is run as it is: import only what you trust.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Run folder; runs/PRESET or runs/TASK-PRESET if not given."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=VALUE,VALUE,…",
        help="Values of a field that each encoding tries on validation data, to keep its best; "
        "several fields are tried in all combinations.",
    ),
]
Jobs = Annotated[
    str | None,
    typer.Option(metavar="N", help="Cells at a time; one for each core if not given."),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help="Test every encoding against this one as well as the first; may be given several "
        "times."
    ),
]
Note = Annotated[
    str | None, typer.Option(help="A remark on the conditions, kept with the results.")
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="Any field of the config, as in width=256."),
]


def new_console() -> Console:
    """Make the console that results are printed on: text as it is, no markup read in it."""
    return Console(soft_wrap=True, markup=False)


def path_of(option: str, text: str | None) -> Path | None:
    """Read a path from the command line; one that no system could take is a ValueError."""
    if text is None:
        return None
    if not text:
        raise ValueError(f"{option} must name a path, got an empty one; . is the working directory")
    size = len(os.fsencode(text))
    if size > MOST_PATH_BYTES:
        raise ValueError(
            f"{option} must be a path of at most {MOST_PATH_BYTES:,} bytes, got {size:,}: "
            f"{shown(text)}; name a shorter one"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{option} must be text that UTF-8 can write, got {shown(text)}; name another path"
        ) from None
    return Path(text)


def import_all(sources: list[str] | None) -> list[ImportedSource]:
    """Import what each --import names; the encodings are then in the registry."""
    from ropewalk.encodings import import_encodings

    for source in sources or []:
        path_of("--import", source)
    return [import_encodings(source) for source in sources or []]


def names_of(texts: list[str] | None) -> list[str]:
    """Read names of encodings as the config writes them, without white space."""
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
    """Build the config that options, a file and ``field=value`` settings describe."""
    from ropewalk.lab.config_reader import make_config
    from ropewalk.lab.sweep import read_sweep
    from ropewalk.machine import pick_device

    options = {name: value for name, value in options.items() if value is not None}
    given = _given_once(settings or [], {**options, "preset": preset}) | options
    for part in str(given.get("data", "")).split(","):  # files, with commas between them
        path_of("--data", part or None)
    if imports:
        given["imports"] = import_all(imports)
    if sweep:
        swept = read_sweep(sweep)
        for name in ("sweep", *swept):
            if name in given:
                raise ValueError(
                    f"{shown(name)} must be given once, got a value and --sweep; leave one out"
                )
        given["sweep"] = swept
    config = make_config(preset, path_of("--config", file), given, fallback)
    pick_device(config.device)  # before any work goes into the data
    return config


def _given_once(settings: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Read settings; a field that is given another value elsewhere is an error naming both."""
    from ropewalk.lab.config_reader import read_setting

    given: dict[str, Any] = {}
    written: dict[str, str] = {}
    for text in settings:
        name, given_value = read_setting(text)
        value = text.partition("=")[2].strip()
        if written.setdefault(name, value) != value:
            raise ValueError(
                f"{shown(name)} must be given once, got {shown(f'{name}={written[name]}')} and "
                f"{shown(text)}; leave one of them out"
            )
        option = options.get(name, value)
        # A preset has a value without being given.
        if option != value and (name, option) != ("preset", "default"):
            raise ValueError(
                f"{shown(name)} must be given once, got {shown(text)} and "
                f"{shown(f'--{name} {option}')}; leave one of them out"
            )
        given[name] = given_value
    return given


LONGEST_NAME = 400  # characters without white space that a message repeats
GOES_ON = "interrupted; the same command goes on where this one stopped"


class Interrupted:
    """What is said when a command is interrupted: ``message``, which it may change as it goes."""

    def __init__(self, message: str) -> None:
        self.message = message


@contextmanager
def errors(interrupted: str = "interrupted; nothing was written") -> Iterator[Interrupted]:
    """Print a user's mistake in one line and exit with 2; other failures say what is kept.

    Being ended and a closed terminal are as good as Ctrl-C. Gives what an interruption says.
    """
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP; nohup ignores it
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt_once)
    warnings.showwarning = _warn
    at_interruption = Interrupted(interrupted)
    try:
        yield at_interruption
    except (ValueError, TypeError) as error:
        _fail(error, 2)
    except ImportError as error:
        _fail(f"{error}; the extra 'lab' has it: pip install 'ropewalk[lab]'", 2)
    except KeyboardInterrupt:
        _fail(at_interruption.message, 130)
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{shown_path(error.filename)}: " if error.filename else ""
        if error.errno in _NO_PATH:
            _fail(f"{where}{error.strerror}; name another path", 2)
        _fail(f"{where}{error.strerror or error}; what was written before is whole", 1)
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
    with suppress(OSError):  # a closed terminal takes no words
        print(f"ropewalk: {one_line(str(message))}", file=sys.stderr)


def one_line(text: str) -> str:
    """Give a message as a terminal may take it: in one line, its longest names cut, no controls.

    Names of files come from outside, and an escape sequence in one would act on the terminal.
    """
    half = LONGEST_NAME // 2
    words = (w if len(w) <= LONGEST_NAME else f"{w[:half]}…{w[-half:]}" for w in text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(words))
