"""``ropewalk tune``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ropewalk.cli.common import (
    GOES_ON,
    Against,
    Imports,
    Jobs,
    Note,
    errors,
    new_console,
    path_of,
)
from ropewalk.cli.usage import whole_number


def tune(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    sweep: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=VALUE,VALUE",
            help="Values to try of beam, length_penalty, select or average.",
        ),
    ],
    jobs: Jobs = None,
    against: Against = None,
    note: Note = None,
    imports: Imports = None,
) -> None:
    """Choose how each encoding of a finished run is decoded, on validation data; score it so.

    Nothing is trained. All encodings have the same choice, and every combination is tried with
    every seed. The run's results and report are written anew.
    """
    with errors() as interruption:
        from ropewalk.encodings import import_encodings
        from ropewalk.lab.compare import compare as run_comparison
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.report.terminal import print_table
        from ropewalk.lab.tuning import read_tuned_config

        folder, at_once = path_of("RUN", run), whole_number("--jobs", jobs)
        assert folder is not None
        for source in imports or []:
            path_of("--import", source)
            import_encodings(source)
        config = read_tuned_config(folder, sweep)
        console = new_console()
        interruption.message = GOES_ON
        with Watcher(console) as watcher:
            results = run_comparison(
                config,
                folder,
                jobs=at_once,
                command=["ropewalk", *sys.argv[1:]],
                note=note,
                against=["".join(name.split()) for name in against or ()],
                watch=watcher.watch,
                stage=watcher.stage,
            )
        print_table(console, results)
        console.print(f"\nReport: {folder / 'report.html'}", highlight=False)
