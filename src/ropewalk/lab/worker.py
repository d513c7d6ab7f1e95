"""The process of one cell: one encoding with one seed.

`python -m ropewalk.lab.worker RUN_FOLDER ENCODING SEED` trains it, or resumes it, and scores it.
It reports progress as lines of JSON on standard output, and nothing else: output of an imported
encoding goes to standard error. With `--stop-at-eof` it saves and ends when standard input closes,
which happens when the parent process dies. `--settings JSON` has the cell's own settings. `--goal
trained` skips the test splits; `--goal tuned` tries the sweep's decoding settings on validation
data instead.
"""

from __future__ import annotations

import _thread
import argparse
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch

from ropewalk.encodings import import_encodings
from ropewalk.files import MOST_DATA_BYTES, read_checked_json, remove_parts, write_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.checkpoint import write_tensors
from ropewalk.lab.config import Config
from ropewalk.lab.config_reader import read_run_config
from ropewalk.lab.ending import end_with, interrupt_once
from ropewalk.lab.former_names import current_facts
from ropewalk.lab.models import Model, load_model
from ropewalk.lab.snapshots import chosen_snapshots, mean_of
from ropewalk.lab.sweep import DECODING_FIELDS, Goal, points, settings_from_json
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import Record, Trainer, check_facts, read_record, stopping_signals
from ropewalk.lab.tuning import try_decoding
from ropewalk.locks import Busy, locked
from ropewalk.machine import pick_device

Emit = Callable[[dict[str, Any]], None]

#: Exit statuses: stopped by a signal, after saving; another process is running the cell.
INTERRUPTED, BUSY = 130, 75
STOP_WITH_PARENT = "--stop-at-eof"
_SMALLER = "use a smaller width, feed_forward or batch_tokens, fewer layers, or fewer --jobs"
ASK_AGAIN = 5.0  # seconds between two requests to stop


def run_cell(run: Path, cell: Cell, emit: Emit, goal: Goal = "scored") -> None:
    """Run one cell of a prepared run up to its goal, skipping finished parts.

    Raises `Busy` if another process is running the cell.
    """
    for held in read_checked_json(run / "config.json").get("imports", ()):
        import_encodings(held["source"], held["digest"])
    config, folder = read_run_config(run), cell.folder(run)
    with locked(folder):
        remove_parts(folder)
        task = open_task(config.with_settings(cell.settings), run)
        record = train_cell(task, cell.encoding, cell.seed, folder, emit)
        if goal == "tuned" and record.status != "diverged":
            emit({"phase": "tuning on validation data"})
            try_decoding(task, points(config.sweep, DECODING_FIELDS), record, folder)
        elif goal == "scored":
            _score(task, record, folder, emit)


def _score(task: Task, record: Record, folder: Path, emit: Emit) -> None:
    config, path = task.config, folder / "model.safetensors"
    model: Model | None = None
    if record.status != "diverged" and not path.exists():
        _write_final_model(config, record, folder)
    for split in task.splits:
        began = time.perf_counter()
        if record.status == "diverged":
            found, began = task.evaluate_diverged(split, folder), time.perf_counter()
        elif task.is_evaluated(split, folder):
            continue
        else:
            if model is None:
                _write_final_model(config, record, folder)
                model = load_model(path, pick_device(config.device))[0]
            emit({"phase": f"{task.evaluation_phase} {split}"})
            began = time.perf_counter()
            try:
                found = task.evaluate(model, split, folder)
            except ValueError as error:  # such as positions beyond those of a learned table
                found = {"no_result": " ".join(str(error).split())}
        facts = {"decoding": config.decoding(), "seconds": time.perf_counter() - began, **found}
        facts["made_from"] = task.made_from(split, folder)
        write_checked_json(folder / f"{split}.json", facts)
    if record.status == "diverged":
        emit({"ended": f"diverged after {record.step} steps"})


def train_cell(task: Task, encoding: str, seed: int, folder: Path, emit: Emit) -> Record:
    """Train a cell to its end, if it is not trained yet, and return its record."""
    config, done = task.config, folder / "training.json"
    if done.exists():
        held = current_facts(read_checked_json(done, "record", most_bytes=MOST_DATA_BYTES))
        check_facts(done, held, {"encoding": encoding, "seed": seed, "config": config.training()})
        return read_record(done, held)
    trainer = Trainer(task, encoding, seed, folder)
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
                    "loss": loss,
                    "tokens_per_s": record.tokens_per_s,
                }
            )

    record = trainer.run(progress)
    write_checked_json(
        done, {**trainer.facts, "precision": trainer.precision, "record": asdict(record)}
    )
    (folder / "last.safetensors").unlink(missing_ok=True)
    return record


def _write_final_model(config: Config, record: Record, folder: Path) -> None:
    """Write `model.safetensors`, the model that is scored."""
    chosen = chosen_snapshots(folder, config.select, config.average, record.validation)
    tensors, facts = mean_of(chosen)
    facts |= {"select": config.select, "average": len(chosen), "steps": record.steps}
    facts |= {"decoding": config.decoding()}
    write_tensors(folder / "model.safetensors", tensors, facts)


def _stop_with_parent() -> None:
    """Make this process save and end when standard input closes, as when the parent dies."""

    def wait() -> None:
        while os.read(0, 1):  # unbuffered: a buffer is locked at interpreter exit
            pass
        while True:  # repeatedly: a signal between two stages may be lost
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()
            time.sleep(ASK_AGAIN)

    threading.Thread(target=wait, daemon=True).start()


def _own_output() -> int:
    """Return a descriptor for events; redirect other standard output to standard error."""
    events = os.dup(1)
    os.dup2(2, 1)  # for code that bypasses Python's sys.stdout
    sys.stdout = sys.stderr
    return events


def _is_of_memory(error: Exception) -> bool:
    # torch's CPU allocator raises a plain RuntimeError.
    kinds = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "allocate memory" in str(error)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ropewalk.lab.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("encoding")
    parser.add_argument("seed", type=int)
    parser.add_argument("--settings", type=settings_from_json, default=(), metavar="JSON")
    parser.add_argument("--goal", choices=get_args(Goal), default="scored")
    parser.add_argument(STOP_WITH_PARENT, action="store_true", dest="stop_at_eof")
    return parser.parse_args(words)


def _main(*words: str) -> int:
    options = _arguments(words)
    events = _own_output()

    def emit(event: dict[str, Any]) -> None:
        line = f"{json.dumps(event)}\n".encode()
        try:
            while line:
                line = line[os.write(events, line) :]
        except BrokenPipeError:  # the parent is gone; stop requests arrive by signal
            os.dup2(os.open(os.devnull, os.O_WRONLY), events)

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        emit({"warning": " ".join(str(message).split())})

    try:
        # Background jobs of a shell inherit an ignored SIGINT; here only the parent sends it.
        own = [signal.SIGINT] if options.stop_at_eof else []
        for number in {*own, *stopping_signals()}:
            signal.signal(number, interrupt_once)
        warnings.showwarning = warn
        if own:
            _stop_with_parent()
        cell = Cell(options.encoding, options.seed, options.settings)
        run_cell(options.run, cell, emit, options.goal)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Busy:
        return BUSY
    except SystemExit as error:  # by an imported encoding; the cell is not finished
        emit({"error": f"an encoding ended the process: SystemExit: {error.code}"})
        return 1
    except (MemoryError, RuntimeError) as error:
        if not _is_of_memory(error):
            raise
        first = " ".join(str(error).split())[:200]
        emit({"error": f"out of memory: {first}; {_SMALLER}"})
        return 1
    except ValueError as error:
        emit({"error": " ".join(str(error).split())})
        return 1
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        emit({"error": f"{what}; files written before are intact"})
        return 1
    return 0


if __name__ == "__main__":
    end_with(lambda: _main(*sys.argv[1:]))
