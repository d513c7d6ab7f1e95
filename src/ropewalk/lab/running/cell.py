"""One cell: what of it is done already, as its files say, and the work that is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from ropewalk.encodings import import_encodings
from ropewalk.files import (
    MOST_DATA_BYTES,
    NotReadError,
    read_checked_json,
    remove_parts,
    write_checked_json,
)
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import DECODING_FIELDS, Config, Goal, points
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.models import Model, load_model
from ropewalk.lab.running.events import Emit
from ropewalk.lab.running.lease import owned
from ropewalk.lab.running.run_folder import read_conditions
from ropewalk.lab.running.tuning import try_decoding, untried
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.tensors import DamagedFile, write_tensors
from ropewalk.lab.training.checkpoints import (
    check_facts,
    chosen_snapshots,
    mean_of,
    remove_checkpoints,
    training_fields,
)
from ropewalk.lab.training.trainer import TRAINED, Record, Trainer
from ropewalk.machine import pick_device


def trained_record(task: Task, encoding: str, seed: int, folder: Path) -> Record | None:
    """Return the record of a training that has ended, or None.

    Raises ValueError if it is damaged, or of another config.
    """
    path = folder / TRAINED
    if not (path.exists() or path.is_symlink()):  # a symlink to a disk that is away is an error
        return None
    facts = read_checked_json(path, "record", most_bytes=MOST_DATA_BYTES)
    fields = training_fields(task.config)
    check_facts(path, facts, {"encoding": encoding, "seed": seed, "config": fields})
    return Record(**facts["record"])


def done_before(cell: Cell, run: Path, config: Config, goal: Goal) -> Record | None:
    """Return the record of a cell that has reached the goal, or None.

    Raises ValueError, as the cell itself would, if a file of it is damaged or of another config.
    """
    folder = cell.folder(run)
    task = open_task(config.with_settings(cell.settings), run)
    record = trained_record(task, cell.encoding, cell.seed, folder)
    if record is None or goal == "trained":
        return record
    diverged = record.status == "diverged"
    if goal == "tuned":
        grid = points(task.config.sweep, DECODING_FIELDS)
        return record if diverged or not untried(task.config, grid, folder) else None
    has_model = diverged or (folder / "model.safetensors").exists()
    evaluated = has_model and all(task.is_evaluated(split, folder) for split in task.splits)
    return record if evaluated else None


Train = Callable[[Task, str, int, Path, Emit, str], Record]


def run_cell(
    run: Path, cell: Cell, emit: Emit, goal: Goal = "scored", train: Train | None = None
) -> None:
    """Run one cell of a prepared run up to its goal, skipping finished parts.

    `train` replaces `train_cell` if several processes train the model together. Raises `Busy` if
    another process is running the cell.
    """
    with owned(cell.folder(run)):
        run_owned(run, cell, emit, goal, train)


def run_owned(run: Path, cell: Cell, emit: Emit, goal: Goal, train: Train | None = None) -> None:
    """Run a cell whose folder this process owns."""
    folder, (task, precision) = cell.folder(run), open_cell(run, cell)
    remove_parts(folder)
    record = (train or train_cell)(task, cell.encoding, cell.seed, folder, emit, precision)
    if goal == "tuned" and record.status != "diverged":
        emit({"phase": "tuning on validation data"})
        grid = points(read_run_config(run).sweep, DECODING_FIELDS)
        try_decoding(task, grid, record, folder)
    elif goal == "scored":
        _score(task, record, folder, emit)


def open_cell(run: Path, cell: Cell) -> tuple[Task, str]:
    """Return a cell's task on the run's device, and its precision; import what the run names."""
    for imported in read_checked_json(run / "config.json").get("imports", ()):
        import_encodings(imported["source"], imported["digest"])
    config, conditions = read_run_config(run), read_conditions(run)
    config = config.model_copy(update={"device": conditions.device})
    return open_task(config.with_settings(cell.settings), run), conditions.precision


def _score(task: Task, record: Record, folder: Path, emit: Emit) -> None:
    config, path = task.config, folder / "model.safetensors"
    model: Model | None = None
    if record.status != "diverged" and not path.exists():
        _write_final_model(config, record, folder)
    for split in task.splits:
        if record.status == "diverged":
            answers, began = task.evaluate_diverged(split, folder), time.perf_counter()
        elif task.is_evaluated(split, folder):
            continue
        else:
            if model is None:
                _write_final_model(config, record, folder)
                model = load_model(path, pick_device(config.device))[0]
            emit({"phase": f"{task.evaluation_phase} {split}"})
            began = time.perf_counter()
            try:
                answers = task.evaluate(model, split, folder)
            except (NotReadError, DamagedFile):  # the model has not been asked
                raise
            except ValueError as error:  # such as positions beyond those of a learned table
                answers = {"no_result": " ".join(str(error).split())}
        facts = {"decoding": config.decoding(), "seconds": time.perf_counter() - began, **answers}
        facts["made_from"] = task.made_from(split, folder)
        write_checked_json(folder / f"{split}.json", facts)
    if record.status == "diverged":
        emit({"ended": f"diverged after {record.step} steps"})


def train_cell(
    task: Task,
    encoding: str,
    seed: int,
    folder: Path,
    emit: Emit,
    precision: str | None = None,
    new_trainer: Callable[..., Trainer] = Trainer,
) -> Record:
    """Train a cell to its end, if it is not trained yet, and return its record."""
    if record := trained_record(task, encoding, seed, folder):
        return record
    trainer = new_trainer(task, encoding, seed, folder, precision)
    if trainer.record.step:
        emit({"phase": f"resumed from step {trainer.record.step} of {trainer.record.steps}"})
    emitted_at = 0.0

    def progress(record: Record, loss: float) -> None:
        nonlocal emitted_at
        if time.monotonic() - emitted_at > 0.5 or record.status != "training":
            emitted_at = time.monotonic()
            emit(
                {
                    "phase": "training",
                    "step": record.step,
                    "steps": record.steps,
                    "seconds": round(record.seconds, 2),
                    "loss": loss,
                    "tokens_per_s": record.tokens_per_s,
                }
            )

    record = trainer.run(progress)
    write_checked_json(
        folder / TRAINED,
        {**trainer.facts, "precision": trainer.precision, "record": asdict(record)},
    )
    (folder / "last.safetensors").unlink(missing_ok=True)
    remove_checkpoints(folder)
    return record


def _write_final_model(config: Config, record: Record, folder: Path) -> None:
    """Write `model.safetensors`, the model that is scored."""
    chosen = chosen_snapshots(folder, config.select, config.average, record.validation)
    tensors, facts = mean_of(chosen)
    facts |= {"select": config.select, "average": len(chosen), "steps": record.steps}
    facts |= {"decoding": config.decoding()}
    write_tensors(folder / "model.safetensors", tensors, facts)


def lack_of_memory(error: Exception) -> str | None:
    """Return one line about an error that is a lack of memory; None for another error."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    # torch's CPU allocator raises a plain RuntimeError.
    if isinstance(error, kinds) or "allocate memory" in str(error):
        return (
            f"out of memory: {' '.join(str(error).split())[:200]}; use a smaller width, "
            f"feed_forward or batch_tokens, fewer layers, or fewer --jobs"
        )
    return None
