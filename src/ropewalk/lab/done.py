"""What of a cell is done already, as the files in its folder say."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import MOST_DATA_BYTES, read_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config
from ropewalk.lab.former_names import current_facts
from ropewalk.lab.sweep import DECODING_FIELDS, Goal, points
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import Record, check_facts, read_record
from ropewalk.lab.tuning import untried

TRAINED = "training.json"


def trained_record(task: Task, encoding: str, seed: int, folder: Path) -> Record | None:
    """Return the record of a training that has ended, or None.

    Raises ValueError if it is damaged, or of another config.
    """
    path = folder / TRAINED
    if not path.exists():
        return None
    held = current_facts(read_checked_json(path, "record", most_bytes=MOST_DATA_BYTES))
    check_facts(path, held, {"encoding": encoding, "seed": seed, "config": task.config.training()})
    return read_record(path, held)


def done_before(cell: Cell, run: Path, config: Config, goal: Goal) -> Record | None:
    """Return the record of a cell that has reached the goal, or None.

    Raises ValueError, as the cell itself would, if a file of it is damaged or of another config.
    """
    folder = cell.folder(run)
    task = open_task(config.with_settings(cell.settings), run)
    record = trained_record(task, cell.encoding, cell.seed, folder)
    return record if record and _reached(task, record, folder, goal) else None


def _reached(task: Task, record: Record, folder: Path, goal: Goal) -> bool:
    diverged = record.status == "diverged"
    if goal == "trained":
        return True
    if goal == "tuned":
        return diverged or not untried(
            task.config, points(task.config.sweep, DECODING_FIELDS), folder
        )
    if not diverged and not (folder / "model.safetensors").exists():
        return False
    return all(task.is_evaluated(split, folder) for split in task.splits)
