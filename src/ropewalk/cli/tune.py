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
    import_all,
    names_of,
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
    """Choose on validation data how each encoding of a finished run is decoded; score that.

    Nothing is trained. The same values are tried for every encoding, in all combinations and with
    every seed; a field that was tuned before and is not named is the config's again. Results and
    report are rewritten.
    """
    with errors() as interruption:
        from ropewalk.lab.compare import compare as run_comparison
        from ropewalk.lab.progress import Watcher
        from ropewalk.lab.report.terminal import print_table
        from ropewalk.lab.results import read_results
        from ropewalk.lab.tuning import read_tuned_config

        folder, at_once = path_of("RUN", run), whole_number("--jobs", jobs)
        assert folder is not None
        import_all(imports)
        config = read_tuned_config(folder, sweep)
        former = read_results(folder)
        console = new_console()
        interruption.message = GOES_ON
        with Watcher(console) as watcher:
            results = run_comparison(
                config,
                folder,
                jobs=at_once,
                command=["ropewalk", *sys.argv[1:]],
                note=former.get("note") if note is None else note,
                against=former.get("against", ()) if against is None else names_of(against),
                after=former["command"],
                watch=watcher.watch,
                stage=watcher.stage,
            )
        print_table(console, results)
        console.print(f"\nReport: {folder / 'report.html'}", highlight=False)
