"""The app: its commands, in the order of the overview, and the exit status of every ending."""

from __future__ import annotations

import functools
import signal
import sys
from typing import Annotated

from ropewalk.checks import needs

try:
    import rich  # noqa: F401, every command needs both
    import typer

    from ropewalk.cli.bench import bench
    from ropewalk.cli.catalogue import catalogue
    from ropewalk.cli.compare import compare
    from ropewalk.cli.convert import convert
    from ropewalk.cli.explore import explore
    from ropewalk.cli.export import export
    from ropewalk.cli.extend import extend
    from ropewalk.cli.inspect import inspect
    from ropewalk.cli.listings import encodings, fields, tasks
    from ropewalk.cli.messages import Command, Commands, UsageError, in_one_line
    from ropewalk.cli.options import flag
    from ropewalk.cli.status import runs, status
    from ropewalk.cli.train import train
    from ropewalk.cli.translate import translate
    from ropewalk.cli.tune import tune
    from ropewalk.cli.usage import usage
    from ropewalk.cli.verify import verify
    from ropewalk.lab.stopping import end_with, interrupt_once
except ImportError as error:
    if error.name not in ("rich", "typer"):
        raise
    print(f"ropewalk: {needs('the command line', error)}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:  # during the imports above
    print("ropewalk: interrupted; nothing was written", file=sys.stderr)
    sys.exit(130)

app = typer.Typer(
    cls=Commands,
    help="Compare position encodings in training, and see what RoPE does in a model.",
    context_settings={"max_content_width": 100},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, flag("--version", "Print the version.")] = False) -> None:
    if version:
        from ropewalk import __version__

        print(__version__)
        raise typer.Exit


TRAINING = (compare, train, status, runs, translate, export, tune, encodings, tasks, fields)
TOOLS = (verify, inspect, extend, convert, usage, catalogue, explore, bench)
for command in (*TRAINING, *TOOLS):
    app.command(cls=Command)(command)


def main() -> None:
    """Run the command line and exit; a usage mistake or Ctrl-C prints one line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_once)
    end_with(run_command)


#: Reading the options of all commands takes 50 ms, which a process that runs many spends once.
_read_commands = functools.cache(typer.main.get_command)


def run_command() -> int:
    """Run the command line and return its exit status."""
    try:
        return int(_read_commands(app)(prog_name="ropewalk", standalone_mode=False) or 0)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            print(error, file=sys.stderr)
        else:
            print(f"ropewalk: {in_one_line(error)}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("ropewalk: interrupted; nothing was written", file=sys.stderr)
        return 130
