"""Training of one cell: one encoding, one seed, resumable at any step."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.files import MOST_DATA_BYTES, read_checked_json
from ropewalk.lab.config import Config
from ropewalk.lab.loss import autocast
from ropewalk.lab.models import Model, build_model
from ropewalk.lab.stopping import interruptions
from ropewalk.lab.tasks.base import Task
from ropewalk.lab.tensors import DamagedFile, check_finite, read_tensors, weights_of, write_tensors
from ropewalk.lab.training.checkpoints import (
    SAVE_EVERY,
    best_snapshot,
    check_facts,
    checkpoints,
    read_together,
    remove_checkpoints,
    restore_training,
    snapshot_path,
    snapshots,
    step_held,
    step_of,
    training_fields,
    training_tensors,
)
from ropewalk.lab.training.process_group import ALONE, Group
from ropewalk.machine import peak_memory, pick_device, pick_precision

TRAINED = "training.json"  # of a cell whose training has ended


def learning_rate(config: Config, step: int, steps: int) -> float:
    """Return the learning rate at a step (from 1): linear warmup, then the schedule's decay.

    `linear` reaches zero after the last step; `noam` is Vaswani et al. 2017, eq. 3, times
    `config.learning_rate`.
    """
    warmup = max(1.0, config.warmup if config.warmup >= 1 else config.warmup * steps)
    if config.schedule == "noam":
        return float(
            config.learning_rate * config.width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        )
    if step <= warmup:
        return config.learning_rate * step / warmup
    return config.learning_rate * (steps + 1 - step) / max(1.0, steps + 1 - warmup)


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
    """One training step: its loss (mean over target tokens) and the norm of all gradients."""

    loss: float
    gradient: float  # before clipping


Progress = Callable[[Record, float], None]


class Trainer:
    """Trains one model and saves what a later session needs to resume at the same step.

    `folder` receives `last.safetensors` (to resume from) and, at each validation, the weights as
    `snapshot-STEP.safetensors`. The best snapshot is kept, and the most recent ones (`keep` of the
    config). `precision` is that of the run; by default the config's. The first process of `group`
    writes; only a `ParallelTrainer` has several.
    """

    def __init__(
        self,
        task: Task,
        encoding: str,
        seed: int,
        folder: Path,
        precision: str | None = None,
        group: Group = ALONE,
    ) -> None:
        self.task, self.config, self.seed, self.folder = task, task.config, seed, folder
        config, self.group = task.config, group
        self.facts = {"encoding": encoding, "seed": seed, "config": training_fields(config)}
        self.device = pick_device(config.device)
        self.precision = precision or pick_precision(config.precision, self.device)
        self.model = self._place(build_model(config, encoding, seed, task.vocabulary))
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        per_epoch = math.ceil(len(task.plan(seed, 0)) / config.accumulate)
        self.record = Record(steps=max(1, round(config.epochs * per_epoch)))
        self.per_epoch = per_epoch
        self._resume()
        for later in snapshots(folder) if group.is_first else ():
            if step_of(later) > self.record.step:  # it will be taken again
                later.unlink()
        group.wait()

    def _place(self, model: Model) -> Model:
        """Return the model on its device, compiled if the config says so."""
        model = model.to(self.device)
        if self.config.compile:
            model.compile()
        return model

    def run(self, progress: Progress = lambda record, loss: None) -> Record:
        """Train to the last step. On Ctrl-C, finish the step, save and raise KeyboardInterrupt."""
        record, count = self.record, self.config.validations
        marks = {math.ceil(record.steps * (i + 1) / count) for i in range(count)}
        saved = time.monotonic()
        batches: Sequence[Sequence[int]] = []
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
                # `interrupted` is read once: a later signal is handled at the next step.
                due = record.status != "training" or time.monotonic() - saved > SAVE_EVERY
                stop, due = self._agree(bool(interrupted), due)
                if stop or due:
                    self._save()
                    saved = time.monotonic()
                if stop and record.status == "training":
                    raise KeyboardInterrupt
        return record

    def _agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return whether to stop and whether to save; several processes must decide the same."""
        return stop, save

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

    def step(self, batches: Sequence[Sequence[int]]) -> Step:
        """Run one training step on these batches of rows."""
        self.model.train()
        record = self.record
        # Only dropout uses the global generator: its masks depend on seed and step alone.
        draw = self.seed * 1_000_003 + record.step
        if self.device.type == "cpu":  # manual_seed formats a stack for each absent device
            torch.default_generator.manual_seed(draw)
        else:
            torch.manual_seed(draw)
        made = [self.task.batch(rows, draw) for rows in batches]
        tokens = sum(batch.target_tokens for batch in made)
        total = self._add_gradients(made, tokens)
        gradient = self._clip_gradients()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, record.step + 1, record.steps)
        if math.isfinite(total):
            self.optimizer.step()
        self.optimizer.zero_grad()
        record.step += 1
        record.target_tokens += tokens
        return Step(total, gradient)

    def _add_gradients(self, batches: Sequence[Any], tokens: int) -> float:
        """Add the gradients of the mean loss over these target tokens, and return the loss."""
        total = 0.0
        for batch in (batch.to(self.device) for batch in batches):
            with autocast(self.device, self.precision):
                loss = self.task.loss(self.model, batch)
            share = batch.target_tokens / tokens
            (loss * share).backward()
            total += float(loss.detach()) * share
        return total

    def _clip_gradients(self) -> float:
        """Clip gradients to a total norm of `config.clip`; return the norm before clipping."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip))

    def _validation_loss(self) -> float:
        return self.task.validation_loss(self.model, self.precision)

    def _validate(self) -> None:
        loss = self._validation_loss()
        record = self.record
        if not math.isfinite(loss):
            record.status = "diverged"
            return
        record.validation.append(
            {"step": record.step, "seconds": round(record.seconds, 3), "loss": round(loss, 5)}
        )
        self._take_snapshot(weights_of(self.model), loss)

    def _take_snapshot(self, weights: dict[str, Tensor], loss: float) -> None:
        record = self.record
        facts = {**self.facts, "step": record.step, "validation_loss": loss}
        write_tensors(snapshot_path(self.folder, record.step), weights, facts)
        for old in snapshots(self.folder)[: -self.config.keep]:
            if old != best_snapshot(self.folder, record.validation):
                old.unlink()

    def _save(self) -> None:
        self.record.peak_memory_bytes = max(self.record.peak_memory_bytes, peak_memory(self.device))
        facts = {**self.facts, "record": asdict(self.record)}
        self._write_checkpoint(training_tensors(self.model, self.optimizer), facts)

    def _write_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        write_tensors(self.folder / "last.safetensors", tensors, facts)
        remove_checkpoints(self.folder)

    def _resume(self) -> None:
        """Continue from `last.safetensors`, or from a newer checkpoint of a group of processes."""
        path, others = self.folder / "last.safetensors", checkpoints(self.folder)
        is_there = path.exists() or path.is_symlink()
        # By step: clocks jump. After a kill between two saves, both are there.
        if others and step_of(others[-1]) >= (step_held(path) if is_there else -1):
            path = others[-1]
            tensors, facts = read_together(path, self.model, self.optimizer, self.group)
        elif is_there:
            try:
                tensors, facts = read_tensors(path)
            except DamagedFile as error:
                # Snapshots have no optimizer state; resuming from one would give another model.
                again = f"{error}; this model is trained again from the first step"
                warnings.warn(again, stacklevel=2)
                path.unlink(missing_ok=True)
                return
        else:
            return
        check_facts(path, facts, self.facts)
        self.record = Record(**facts["record"])
        if self.record.status != "diverged":
            check_finite(path, tensors)
        restore_training(self.model, self.optimizer, self._own(tensors))

    def _own(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's part of complete tensors; with one process, that is all of them."""
        return tensors


def ended_training(folder: Path) -> Record:
    """Return the record of a cell's training that has ended."""
    path = folder / TRAINED
    return Record(**read_checked_json(path, "record", most_bytes=MOST_DATA_BYTES)["record"])
