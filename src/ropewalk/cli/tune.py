"""`ropewalk tune`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ropewalk.cli.messages import RESUMABLE, errors, new_console
from ropewalk.cli.options import Against, Imports, Jobs, Note, import_all, names_of, path_of


def tune(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    sweep: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=VALUE,VALUE",
            help="Values to try; fields are beam, length_penalty, select and average.",
        ),
    ],
    jobs: Jobs = None,
    against: Against = None,
    note: Note = None,
    imports: Imports = None,
) -> None:
    """Tune decoding of a finished run on validation data.

    Nothing is trained. Every encoding tries all combinations of the values, with all its seeds, and
    keeps the best combination; then results and report are rewritten. A field that was
    tuned earlier, and that this command does not name, goes back to the config's value.
    """
    with errors() as interruption:
        from ropewalk.lab.report.terminal import print_table
        from ropewalk.lab.results import read_results
        from ropewalk.lab.running.compare import compare as run_comparison
        from ropewalk.lab.running.progress import Watcher
        from ropewalk.lab.running.tuning import read_tuned_config

        folder = path_of("RUN", run)
        import_all(imports)
        config = read_tuned_config(folder, sweep)
        former = read_results(folder)
        console = new_console()
        interruption.message = RESUMABLE
        with Watcher(console) as watcher:
            results = run_comparison(
                config,
                folder,
                jobs=jobs,
                command=["ropewalk", *sys.argv[1:]],
                note=former.note if note is None else note,
                against=former.against if against is None else names_of(against),
                after=former.command,
                watch=watcher.watch,
                stage=watcher.stage,
                progress=watcher.progress,
            )
        if results is not None:  # else this is another process of torchrun
            print_table(console, results)
            console.print(f"\nReport: {folder / 'report.html'}", highlight=False)
