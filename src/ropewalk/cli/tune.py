"""`ropewalk tune`."""

from __future__ import annotations

from typing import Annotated

from ropewalk.cli import options
from ropewalk.cli.compare import run_and_print
from ropewalk.cli.messages import RESUMABLE, errors, new_console
from ropewalk.cli.options import argument


def tune(
    run: Annotated[str, argument("RUN", "Folder of a finished run.")],
    sweep: Annotated[
        list[str],
        argument(
            "FIELD=VALUE,VALUE",
            "Values to try; fields are beam, length_penalty, select and average.",
        ),
    ],
    jobs: options.Jobs = None,
    against: options.Against = None,
    note: options.Note = None,
    imports: options.Imports = None,
) -> None:
    """Tune decoding of a finished run on validation data.

    Nothing is trained. Every encoding tries all combinations of the values, with all its seeds, and
    keeps the best combination; then results and report are rewritten. A field that was
    tuned earlier, and that this command does not name, goes back to the config's value.
    """
    with errors() as interruption:
        from ropewalk.lab.results import read_results
        from ropewalk.lab.running.tuning import read_tuned_config

        folder = options.path_of("RUN", run)
        options.import_all(imports)
        config = read_tuned_config(folder, sweep)
        former = read_results(folder)
        interruption.message = RESUMABLE
        run_and_print(
            new_console(),
            config,
            folder,
            jobs=jobs,
            note=former.note if note is None else note,
            against=former.against if against is None else options.names_of(against),
            after=former.command,
        )
