"""`ropewalk status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.common import errors
from ropewalk.cli.listing import print_rows


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
) -> None:
    """List the cells of a run: state, place, step and time left.

    It reads the run's folder only, so it works on any machine that shares the folder, and without
    the command that started the run.
    """
    with errors():
        from ropewalk.lab.running.status import COLUMNS, read_status

        found = read_status(run)
        print_rows([COLUMNS, *(cell.row() for cell in found.cells)], widest=60)
        print(f"\n{found.summary()}")
