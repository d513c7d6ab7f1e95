"""`ropewalk status` and `ropewalk runs`: what the folders of runs say."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from ropewalk.cli.messages import errors, print_json, print_listing, print_rows
from ropewalk.cli.options import AsJson, argument


def status(
    run: Annotated[Path, argument("RUN", "Folder of a run.")], as_json: AsJson = False
) -> None:
    """List the cells of a run: state, place, step and time left.

    It reads the run's folder only, so it works on any machine that shares the folder, and without
    the command that started the run.
    """
    with errors(as_json=as_json):
        from ropewalk.lab.running.status import COLUMNS, read_status

        found = read_status(run)
        if as_json:
            cells = [asdict(cell) for cell in found.cells]
            print_json({"run": str(run), "finished": found.finished, "cells": cells})
            return
        print_rows([COLUMNS, *(cell.row() for cell in found.cells)], widest=60)
        print(f"\n{found.summary()}")


def runs(
    folder: Annotated[Path, argument("FOLDER", "Folder that contains runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder with their scores and states."""
    with errors(as_json=as_json):
        from ropewalk.lab.running.status import RUN_COLUMNS, list_runs

        print_listing(RUN_COLUMNS, list_runs(folder), as_json=as_json)
