"""The process of one cell: one encoding with one seed.

`python -m ropewalk.lab.worker RUN_FOLDER ENCODING SEED` trains it, or resumes it, and scores it.
It reports progress in `events.jsonl` of the cell's folder; all output, also of an imported
encoding, goes to standard error. With `--stop-at-eof` it saves and ends when standard input
closes, which happens when the parent process dies. `--settings JSON` has the cell's own settings.
`--goal trained` skips the test splits; `--goal tuned` tries the sweep's decoding settings on
validation data instead. `--attempt` names this start in the events, `--job` the job for people, and
`--dead` is the mark of a lease that may be taken over.
"""

from __future__ import annotations

import _thread
import argparse
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from ropewalk.encodings import import_encodings
from ropewalk.files import Busy, read_checked_json, remove_parts, write_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.checkpoint import write_tensors
from ropewalk.lab.config import Config, encodings_unchecked
from ropewalk.lab.config_reader import read_run_config
from ropewalk.lab.distributed.checkpoints import remove_checkpoints
from ropewalk.lab.done import TRAINED, done_before, trained_record
from ropewalk.lab.ending import end_with, interrupt_once
from ropewalk.lab.launch.conditions import read_conditions
from ropewalk.lab.launch.events import EventWriter
from ropewalk.lab.launch.exits import BUSY, INTERRUPTED
from ropewalk.lab.launch.lease import owned
from ropewalk.lab.launch.worker_process import STOP_WITH_PARENT
from ropewalk.lab.models import Model, load_model
from ropewalk.lab.signals import stopping_signals
from ropewalk.lab.snapshots import chosen_snapshots, mean_of
from ropewalk.lab.sweep import DECODING_FIELDS, Goal, points, settings_from_json
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import Record, Trainer
from ropewalk.lab.tuning import try_decoding
from ropewalk.machine import pick_device

Emit = Callable[[dict[str, Any]], None]
Train = Callable[[Task, str, int, Path, Emit, str | None], Record]

_SMALLER = "use a smaller width, feed_forward or batch_tokens, fewer layers, or fewer --jobs"
ASK_AGAIN = 5.0  # seconds between two requests to stop


def run_cell(
    run: Path, cell: Cell, emit: Emit, goal: Goal = "scored", train: Train | None = None
) -> None:
    """Run one cell of a prepared run up to its goal, skipping finished parts.

    `train` replaces `train_cell` if several processes train the model together. Raises `Busy` if
    another process is running the cell.
    """
    with owned(cell.folder(run)):
        _run_owned(run, cell, emit, goal, train)


def _run_owned(run: Path, cell: Cell, emit: Emit, goal: Goal, train: Train | None = None) -> None:
    """Run a cell whose folder this process owns."""
    for held in read_checked_json(run / "config.json").get("imports", ()):
        import_encodings(held["source"], held["digest"])
    config, folder, precision = read_run_config(run), cell.folder(run), None
    if conditions := read_conditions(run):
        config = config.model_copy(update={"device": conditions.device})
        precision = conditions.precision
    remove_parts(folder)
    task = open_task(config.with_settings(cell.settings), run)
    record = (train or train_cell)(task, cell.encoding, cell.seed, folder, emit, precision)
    if goal == "tuned" and record.status != "diverged":
        emit({"phase": "tuning on validation data"})
        try_decoding(task, points(config.sweep, DECODING_FIELDS), record, folder)
    elif goal == "scored":
        _score(task, record, folder, emit)


def _is_done(run: Path, cell: Cell, goal: Goal) -> bool:
    """Return whether a cell needs nothing, as one that waited in a queue while another ran it."""
    with encodings_unchecked(), suppress(ValueError, OSError):  # which `_run_owned` reports
        return bool(done_before(cell, run, read_run_config(run), goal))
    return False


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
    if held := trained_record(task, encoding, seed, folder):
        return held
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


def _output_to_stderr() -> None:
    """Redirect standard output, which nobody reads, to standard error."""
    os.dup2(2, 1)  # for code that bypasses Python's sys.stdout
    sys.stdout = sys.stderr


def lack_of_memory(error: Exception) -> str | None:
    """Return one line about an error that is a lack of memory; None for another error."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    # torch's CPU allocator raises a plain RuntimeError.
    if isinstance(error, kinds) or "allocate memory" in str(error):
        return f"out of memory: {' '.join(str(error).split())[:200]}; {_SMALLER}"
    return None


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ropewalk.lab.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("encoding")
    parser.add_argument("seed", type=int)
    parser.add_argument("--settings", type=settings_from_json, default=(), metavar="JSON")
    parser.add_argument("--goal", choices=get_args(Goal), default="scored")
    for name in ("attempt", "job", "dead"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument(STOP_WITH_PARENT, action="store_true", dest="stop_at_eof")
    return parser.parse_args(words)


def _main(*words: str) -> int:
    options = _arguments(words)
    _output_to_stderr()
    emit: Emit = _say

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
        folder = cell.folder(options.run)
        read_checked_json(options.run / "config.json")  # before a folder is made in it
        with owned(folder, job=options.job, dead=options.dead) as owner:
            if _is_done(options.run, cell, options.goal):
                return 0
            facts = {"host": owner.host, "job": owner.job, "pid": owner.pid}
            facts |= {"started": owner.started, "threads": torch.get_num_threads()}
            with EventWriter(folder, options.attempt, facts) as emit:
                return _ending(partial(_run_owned, options.run, cell, emit, options.goal), emit)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Busy:
        return BUSY
    except (ValueError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1


def _say(event: dict[str, Any]) -> None:
    """Print an event that happens before the cell's folder is owned."""
    print(event.get("warning", event), file=sys.stderr)


def _ending(work: Callable[[], None], emit: Emit) -> int:
    """Run a cell and return the exit status; an error that is no fault of the code is an event."""
    try:
        work()
    except SystemExit as error:  # by an imported encoding; the cell is not finished
        emit({"error": f"an encoding ended the process: SystemExit: {error.code}"})
        return 1
    except (MemoryError, RuntimeError) as error:
        said = lack_of_memory(error)
        if said is None:
            raise
        emit({"error": said})
        return 1
    except ValueError as error:
        emit({"error": " ".join(str(error).split())})
        return 1
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        said = f"{what}; files written before are intact"
        try:
            emit({"error": said})
        except OSError:  # the disk is full, or gone
            print(said, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    end_with(lambda: _main(*sys.argv[1:]))
