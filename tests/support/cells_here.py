"""Cells of a comparison in this process, one after another: no processes, no signals."""

import pytest

from ropewalk.lab.cells import cells_of
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.running.cell import run_cell
from ropewalk.lab.running.launcher import LocalLauncher
from ropewalk.lab.running.run_folder import fix_conditions, prepare


def prepare_here(config, run):
    """Prepare a run whose cells `run_cell` can run."""
    task = prepare(config, run)
    fix_conditions(config, run, 1, LocalLauncher())
    return task


def run_cells_here(config, run, jobs=None, watch=None, *, cells=None, goal="scored", launcher=None):
    """Replace `ropewalk.lab.running.scheduler.run_cells`."""
    fix_conditions(config, run, 1, LocalLauncher())
    for cell in cells_of(config) if cells is None else cells:
        run_cell(run, cell, lambda event: None, goal)
    return 1


def compare_here(config, run, **how):
    """Compare with the cells trained in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        return comparison.compare(config, run, **how)
