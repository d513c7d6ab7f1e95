"""Cells of a run under torchrun: trained by all processes together, one cell after another.

The first process does everything else: it prepares the run folder, scores each model and writes
the report. The others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.files import Busy
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config, Goal
from ropewalk.lab.running.cell import lack_of_memory, open_cell, run_cell, train_cell
from ropewalk.lab.running.events import Emit, Event, Watch
from ropewalk.lab.running.tuning import is_trained
from ropewalk.lab.stopping import CellFailed
from ropewalk.lab.tasks import Task
from ropewalk.lab.training.parallel_trainer import ParallelTrainer
from ropewalk.lab.training.process_group import Group, failures_in_words, join
from ropewalk.lab.training.trainer import Record


def run_cells_together(
    config: Config, run: Path, cells: Sequence[Cell], goal: Goal, watch: Watch
) -> None:
    """Run cells of a prepared run up to the goal. An error in one ends all processes."""
    group = join(config.device)
    with failures_in_words():
        for cell in group.broadcast(list(cells)):
            try:
                if group.is_first:
                    _lead(group, run, cell, goal, watch)
                else:
                    task, precision = open_cell(run, cell)
                    own = (task, cell.encoding, cell.seed, cell.folder(run), precision)
                    if group.broadcast(False):  # unless the first process says that it is trained
                        ParallelTrainer(*own, group).run()
            except (MemoryError, RuntimeError) as error:
                if (said := lack_of_memory(error)) is None:
                    raise
                raise CellFailed(f"{cell}: {said}") from None
            group.wait()


def _lead(group: Group, run: Path, cell: Cell, goal: Goal, watch: Watch) -> None:
    def train(
        task: Task, encoding: str, seed: int, folder: Path, emit: Emit, precision: str
    ) -> Record:
        def together(*_: Any) -> ParallelTrainer:
            group.broadcast(True)
            return ParallelTrainer(task, encoding, seed, folder, precision, group)

        if is_trained(cell, run):
            group.broadcast(False)
        return train_cell(task, encoding, seed, folder, emit, precision, together)

    ended = "finished"

    def emit(event: Event) -> None:
        nonlocal ended
        ended = event.get("ended", ended)
        watch(cell, event)

    watch(cell, {"phase": "starting"})
    try:
        run_cell(run, cell, emit, goal, train)
    except Busy:
        raise ValueError(
            f"{cell} is being trained by another command; wait until it ends, or stop it"
        ) from None
    watch(cell, {"phase": ended})
