"""Training of one cell: one encoding, one seed, resumable at any step."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from torch import nn

from ropewalk.lab.checkpoint import (
    DamagedFile,
    check_finite,
    load_weights,
    read_tensors,
    weights_of,
    write_tensors,
)
from ropewalk.lab.config import Config, first_line
from ropewalk.lab.loss import autocast
from ropewalk.lab.models import build_model
from ropewalk.lab.snapshots import best_snapshot, snapshot_path, snapshots, step_of
from ropewalk.lab.tasks.base import Task
from ropewalk.machine import peak_memory, pick_device, pick_precision

SAVE_EVERY = 60.0  # seconds of training between resumable checkpoints


@dataclass
class Record:
    """Progress and curves of a training run."""

    status: str = "training"
    step: int = 0
    steps: int = 0
    seconds: float = 0.0  # of training, without validation and checkpoints
    target_tokens: int = 0
    peak_memory_bytes: int = 0
    training: list[dict[str, float]] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.target_tokens / self.seconds if self.seconds else 0.0


class Step(NamedTuple):
    """One training step: its loss, a mean over target tokens, and the norm of all gradients."""

    loss: float
    gradient: float  # before clipping


Progress = Callable[[Record, float], None]


class Trainer:
    """Trains one model and saves what a later session needs to resume at the same step.

    `folder` receives `last.safetensors` (to resume from) and the last `keep` snapshots taken at
    validation, `snapshot-STEP.safetensors`, and also the best one.
    """

    def __init__(self, task: Task, encoding: str, seed: int, folder: Path) -> None:
        self.task, self.config, self.seed, self.folder = task, task.config, seed, folder
        config = task.config
        self.facts = {"encoding": encoding, "seed": seed, "config": config.training()}
        self.device = pick_device(config.device)
        self.precision = pick_precision(config.precision, self.device)
        self.model = build_model(config, encoding, seed, task.vocabulary).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        per_epoch = math.ceil(len(task.plan(seed, 0)) / config.accumulate)
        self.record = Record(steps=max(1, round(config.epochs * per_epoch)))
        self.per_epoch = per_epoch
        if (folder / "last.safetensors").exists():
            self._resume()
        # Delete snapshots after the resumed step: they will be taken again.
        for later in snapshots(folder):
            if step_of(later) > self.record.step:
                later.unlink()

    def run(self, progress: Progress = lambda record, loss: None) -> Record:
        """Train to the last step. On Ctrl-C, finish the step, save and raise KeyboardInterrupt."""
        record, marks = self.record, self._validation_steps()
        saved = time.monotonic()
        batches: list[list[int]] = []
        with interruptions() as interrupted:
            while record.status == "training":
                epoch, place = divmod(record.step, self.per_epoch)
                if not batches or place == 0:
                    batches = self.task.plan(self.seed, epoch)
                first = place * self.config.accumulate
                began = time.perf_counter()
                taken = self.step(batches[first : first + self.config.accumulate])
                record.seconds += time.perf_counter() - began
                self._note(taken, validate=record.step in marks)
                progress(record, taken.loss)
                # Read once: a later signal is handled at the next step, which also saves.
                stop = bool(interrupted)
                if stop or record.status != "training" or time.monotonic() - saved > SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
                if stop and record.status == "training":
                    raise KeyboardInterrupt
        return record

    def _note(self, taken: Step, *, validate: bool) -> None:
        record = self.record
        if not math.isfinite(taken.loss):
            record.status = "diverged"
            return
        seen = {"step": record.step, "seconds": round(record.seconds, 3)}
        seen |= {name: round(value, 4) for name, value in taken._asdict().items()}
        record.training.append(seen)
        if validate:
            self._validate()
        if record.step >= record.steps and record.status == "training":
            record.status = "finished"

    def step(self, batches: list[list[int]]) -> Step:
        """Run one training step on these batches of rows."""
        self.model.train()
        record = self.record
        # Only dropout uses the global generator: its masks depend on seed and step alone.
        draw = self.seed * 1_000_003 + record.step
        torch.manual_seed(draw)
        made = [self.task.batch(rows, draw).to(self.device) for rows in batches]
        tokens = sum(batch.target_tokens for batch in made)
        total = 0.0
        for batch in made:
            with autocast(self.device, self.precision):
                loss = self.task.loss(self.model, batch)
            share = batch.target_tokens / tokens
            (loss * share).backward()
            total += float(loss.detach()) * share
        gradient = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, record.step + 1, record.steps)
        if math.isfinite(total):
            self.optimizer.step()
        self.optimizer.zero_grad()
        record.step += 1
        record.target_tokens += tokens
        return Step(total, float(gradient))

    def _validate(self) -> None:
        loss = self.task.validation_loss(self.model, self.precision)
        record = self.record
        if not math.isfinite(loss):
            record.status = "diverged"
            return
        record.validation.append(
            {"step": record.step, "seconds": round(record.seconds, 3), "loss": round(loss, 5)}
        )
        facts = {**self.facts, "step": record.step, "validation_loss": loss}
        path = snapshot_path(self.folder, record.step)
        write_tensors(path, weights_of(self.model), facts)
        for old in snapshots(self.folder)[: -self.config.keep]:
            if old != best_snapshot(self.folder, record.validation):
                old.unlink()

    def _validation_steps(self) -> set[int]:
        n = self.config.validations
        return {math.ceil(self.record.steps * (i + 1) / n) for i in range(n)}

    def _save(self) -> None:
        self.record.peak_memory_bytes = max(self.record.peak_memory_bytes, peak_memory(self.device))
        tensors = {f"model.{k}": v for k, v in weights_of(self.model).items()}
        names = [name for name, _ in self.model.named_parameters()]
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{names[i]}.{k}": v for k, v in state.items()}
        facts = {**self.facts, "record": asdict(self.record)}
        write_tensors(self.folder / "last.safetensors", tensors, facts)

    def _resume(self) -> None:
        path = self.folder / "last.safetensors"
        try:
            tensors, facts = read_tensors(path)
        except DamagedFile as error:
            # Snapshots have no optimizer state; resuming from one would give another model.
            warnings.warn(f"{error}; the cell is trained again from the first step", stacklevel=2)
            path.unlink()
            return
        check_facts(path, facts, self.facts)
        self.record = read_record(path, facts)
        if self.record.status != "diverged":
            check_finite(path, tensors)
        held = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        load_weights(self.model, held)
        state = self.optimizer.state_dict()
        for i, (name, _) in enumerate(self.model.named_parameters()):
            prefix = f"optimizer.{name}."
            held = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if held:
                state["state"][i] = held
        self.optimizer.load_state_dict(state)


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP instead of interrupting a step."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals only to the main thread
        return
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in stopping_signals()
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that request a stop, without those that are ignored (nohup)."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    found = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [each for each in found if signal.getsignal(each) != signal.SIG_IGN]


def read_record(path: Path, facts: dict[str, Any]) -> Record:
    """Return the record in a file's facts. Raises ValueError, naming the file, if it has none."""
    try:
        return Record(**facts["record"])
    except (KeyError, TypeError):
        raise ValueError(
            f"{path} has no record of a training run; delete it and run the same command to train "
            f"the cell again"
        ) from None


def learning_rate(config: Config, step: int, steps: int) -> float:
    """Return the learning rate at a step (from 1): linear warmup, then the schedule's decay.

    `linear` reaches zero after the last step; `noam` is Vaswani et al. 2017, eq. 3.
    """
    warmup = config.warmup if config.warmup >= 1 else config.warmup * steps
    warmup = max(1.0, warmup)
    if config.schedule == "noam":
        return float(
            config.learning_rate * config.width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        )
    if step <= warmup:
        return config.learning_rate * step / warmup
    return config.learning_rate * (steps + 1 - step) / max(1.0, steps + 1 - warmup)


def check_facts(path: Path, held: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise ValueError, naming what differs, for a checkpoint of another config or seed."""
    ours = {**wanted["config"], **{k: wanted[k] for k in ("encoding", "seed")}}
    try:
        config = Config.model_validate(held.get("config", {})).training()
    except ValidationError as error:
        raise ValueError(f"{path} has an invalid config: {first_line(error)}") from None
    theirs = {**config, **{k: held.get(k) for k in ("encoding", "seed")}}
    differing = [
        f"{name} is {theirs.get(name)!r} there and {value!r} here"
        for name, value in ours.items()
        if theirs.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"{path} is a checkpoint of another config: {'; '.join(differing)}; use the config it "
            f"was made with, or another run folder"
        )
