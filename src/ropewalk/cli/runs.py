"""`ropewalk runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.common import errors
from ropewalk.cli.listing import print_rows


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that contains runs.")
    ] = Path("runs"),
) -> None:
    """List the runs in a folder with their scores and states."""
    with errors():
        from ropewalk.lab.running.status import RUN_COLUMNS, list_runs

        print_rows([RUN_COLUMNS, *list_runs(folder)])
