"""One cell of a comparison, one encoding with one seed, in a process of its own.

``python -m ropewalk.lab.worker RUN_FOLDER ENCODING SEED`` trains it, or goes on where it stopped,
and scores it; it tells how far it is in lines of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ropewalk.encodings import import_encodings
from ropewalk.files import read_json, write_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.checkpoint import write_tensors
from ropewalk.lab.config import Config, read_run_config
from ropewalk.lab.former_names import current_facts
from ropewalk.lab.models import Model, load_model
from ropewalk.lab.snapshots import chosen_snapshots, mean_of
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import Record, Trainer, check_facts
from ropewalk.machine import pick_device

Emit = Callable[[dict[str, Any]], None]


def run_cell(run: Path, encoding: str, seed: int, emit: Emit) -> None:
    """Train and score one cell of a prepared run, skipping what is there already."""
    for held in read_json(run / "config.json").get("imports", ()):
        import_encodings(held["source"], held["digest"])
    config = read_run_config(run)
    task = open_task(config, run)
    folder = Cell(encoding, seed).folder(run)
    record = train_cell(task, encoding, seed, folder, emit)
    model: Model | None = None
    for split in task.splits:
        began = time.perf_counter()
        if record.status == "diverged":
            found, began = task.evaluate_diverged(split, folder), time.perf_counter()
        elif task.is_evaluated(split, folder):
            continue
        else:
            if model is None:
                model = load_model(
                    _final_model(config, record, folder), pick_device(config.device)
                )[0]
            emit({"phase": f"{task.evaluation_phase} {split}"})
            began = time.perf_counter()
            try:
                found = task.evaluate(model, split, folder)
            except ValueError as error:  # such as positions beyond those of a learned table
                found = {"no_result": " ".join(str(error).split())}
        facts = {"decoding": config.decoding(), "seconds": time.perf_counter() - began, **found}
        write_json(folder / f"{split}.json", facts)


def train_cell(task: Task, encoding: str, seed: int, folder: Path, emit: Emit) -> Record:
    """Train a cell to its end, unless it is there, and give what was seen of the training."""
    config, done = task.config, folder / "training.json"
    if done.exists():
        held = current_facts(read_json(done))
        check_facts(done, held, {"encoding": encoding, "seed": seed, "config": config.training()})
        return Record(**held["record"])
    trainer = Trainer(task, encoding, seed, folder)
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
                    "loss": loss,
                    "tokens_per_s": record.tokens_per_s,
                }
            )

    record = trainer.run(progress)
    write_json(done, {**trainer.facts, "precision": trainer.precision, "record": asdict(record)})
    (folder / "last.safetensors").unlink(missing_ok=True)
    return record


def _final_model(config: Config, record: Record, folder: Path) -> Path:
    """Write ``model.safetensors``, the model to be scored, and return its path."""
    chosen = chosen_snapshots(folder, config.select, config.average, record.validation)
    tensors, facts = mean_of(chosen)
    facts |= {"select": config.select, "average": len(chosen), "steps": record.steps}
    path = folder / "model.safetensors"
    write_tensors(path, tensors, facts)
    return path


def _main(run: str, encoding: str, seed: str) -> int:
    def emit(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    try:
        run_cell(Path(run), encoding, int(seed), emit)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        emit({"error": " ".join(str(error).split())})
        return 1
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        emit({"error": f"{what}; what was written before is whole, and the same command goes on"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
