"""Cells of a comparison in this process, one after another: no processes, no signals."""

from ropewalk.lab.cells import cells_of
from ropewalk.lab.running.cell import run_cell


def run_cells_here(config, run, jobs, watch, *, cells=None, goal="scored", launcher=None):
    """Replace `ropewalk.lab.running.scheduler.run_cells`."""
    for cell in cells_of(config) if cells is None else cells:
        run_cell(run, cell, lambda event: None, goal)
    return 1
