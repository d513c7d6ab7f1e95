"""Training of one cell: one encoding, one seed, resumable at any step."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ropewalk.encodings import build_encoder_decoder
from ropewalk.lab.batches import Batch, EncodedSplit, in_order, make_batch, plan_epoch
from ropewalk.lab.checkpoint import read_tensors, write_tensors
from ropewalk.lab.config import Config
from ropewalk.lab.loss import linear_cross_entropy
from ropewalk.lab.tokens import PAD
from ropewalk.machine import peak_memory, pick_device, pick_precision
from ropewalk.model import Transformer, initialise

SAVE_EVERY = 60.0  # seconds of training between resumable checkpoints


@dataclass
class Record:
    """What has been seen of a training so far."""

    status: str = "training"
    step: int = 0
    steps: int = 0
    seconds: float = 0.0  # of training, validation and checkpoints not counted
    target_tokens: int = 0
    peak_memory_bytes: int = 0
    training: list[dict[str, float]] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.target_tokens / self.seconds if self.seconds else 0.0


Progress = Callable[[Record, float], None]


def build_model(config: Config, encoding: str, seed: int, vocabulary: int) -> Transformer:
    """Build the model of a cell, each parameter drawn from the seed and its name."""
    shape = config.shape(vocabulary)
    encodings = build_encoder_decoder(encoding, shape.stack(causal=False), shape.stack(causal=True))
    model = Transformer(shape, *encodings)
    initialise(model, seed)
    return model


class Trainer:
    """Trains one model and writes what a later sitting needs to go on from the same step.

    ``folder`` receives ``last.safetensors`` (to resume from) and ``snapshot-STEP.safetensors``, the
    last ``keep`` of those taken at validation.
    """

    def __init__(
        self,
        config: Config,
        encoding: str,
        seed: int,
        splits: dict[str, EncodedSplit],
        vocabulary: int,
        folder: Path,
    ) -> None:
        self.config, self.seed, self.folder = config, seed, folder
        self.train, self.held_out = splits["train"], splits["validation"]
        self.facts = {"encoding": encoding, "seed": seed, "config": config.training()}
        self.device = pick_device(config.device)
        self.precision = pick_precision(config.precision, self.device)
        self.model = build_model(config, encoding, seed, vocabulary).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        per_epoch = math.ceil(len(self._epoch(0)) / config.accumulate)
        self.record = Record(steps=max(1, round(config.epochs * per_epoch)))
        self.per_epoch = per_epoch
        if (folder / "last.safetensors").exists():
            self._resume()

    def run(self, progress: Progress = lambda record, loss: None) -> Record:
        """Train to the last step; at Ctrl-C, finish the step, save and raise KeyboardInterrupt."""
        record, marks = self.record, self._validation_steps()
        saved = time.monotonic()
        batches: list[list[int]] = []
        with interruptions() as interrupted:
            while record.status == "training":
                epoch, place = divmod(record.step, self.per_epoch)
                if not batches or place == 0:
                    batches = self._epoch(epoch)
                first = place * self.config.accumulate
                began = time.perf_counter()
                loss = self.step(batches[first : first + self.config.accumulate])
                record.seconds += time.perf_counter() - began
                self._note(loss, validate=record.step in marks)
                progress(record, loss)
                # Asked once: who interrupts behind this line is heard at the next step, and saved.
                stop = bool(interrupted)
                if stop or record.status != "training" or time.monotonic() - saved > SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
                if stop and record.status == "training":
                    raise KeyboardInterrupt
        return record

    def _note(self, loss: float, *, validate: bool) -> None:
        record = self.record
        seen = {"step": record.step, "seconds": round(record.seconds, 3), "loss": round(loss, 4)}
        if not math.isfinite(loss):
            record.status = "diverged"
            return
        record.training.append(seen)
        if validate:
            self._validate()
        if record.step >= record.steps:
            record.status = "finished"

    def step(self, batches: list[list[int]]) -> float:
        """Take one step on these batches of rows and give its loss, a mean over target tokens."""
        self.model.train()
        record = self.record
        # Dropout alone draws from the global generator: the same masks whatever came before.
        torch.manual_seed(self.seed * 1_000_003 + record.step)
        made = [make_batch(self.train, rows).to(self.device) for rows in batches]
        tokens = sum(batch.target_tokens for batch in made)
        total = 0.0
        for batch in made:
            with autocast(self.device, self.precision):
                loss = training_loss(self.model, batch, self.config.label_smoothing)
            share = batch.target_tokens / tokens
            (loss * share).backward()
            total += float(loss.detach()) * share
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, record.step + 1, record.steps)
        if math.isfinite(total):
            self.optimizer.step()
        self.optimizer.zero_grad()
        record.step += 1
        record.target_tokens += tokens
        return total

    def _validate(self) -> None:
        loss = validation_loss(self.model, self.held_out, self.config, self.precision)
        record = self.record
        record.validation.append(
            {"step": record.step, "seconds": round(record.seconds, 3), "loss": round(loss, 5)}
        )
        facts = {**self.facts, "step": record.step, "validation_loss": loss}
        path = self.folder / f"snapshot-{record.step:07d}.safetensors"
        write_tensors(path, self.model.state_dict(), facts)
        for old in snapshots(self.folder)[: -self.config.keep]:
            if old != best_snapshot(self.folder, record):
                old.unlink()

    def _epoch(self, epoch: int) -> list[list[int]]:
        config = self.config
        return plan_epoch(
            self.train,
            tokens=config.batch_tokens,
            sentences=config.batch_sentences,
            seed=self.seed,
            epoch=epoch,
        )

    def _validation_steps(self) -> set[int]:
        n = self.config.validations
        return {math.ceil(self.record.steps * (i + 1) / n) for i in range(n)}

    def _save(self) -> None:
        self.record.peak_memory_bytes = max(self.record.peak_memory_bytes, peak_memory(self.device))
        tensors: dict[str, Tensor] = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        names = [name for name, _ in self.model.named_parameters()]
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{names[i]}.{k}": v for k, v in state.items()}
        facts = {**self.facts, "record": asdict(self.record)}
        write_tensors(self.folder / "last.safetensors", tensors, facts)

    def _resume(self) -> None:
        path = self.folder / "last.safetensors"
        tensors, facts = read_tensors(path)
        check_facts(path, facts, self.facts)
        self.record = Record(**facts["record"])
        self.model.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        state = self.optimizer.state_dict()
        for i, (name, _) in enumerate(self.model.named_parameters()):
            prefix = f"optimizer.{name}."
            held = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if held:
                state["state"][i] = held
        self.optimizer.load_state_dict(state)
        # Snapshots of steps behind the one resumed from are taken anew.
        for later in snapshots(self.folder):
            if step_of(later) > self.record.step:
                later.unlink()


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of being torn out of a step half done."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals to the main thread alone
        return
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def training_loss(model: Transformer, batch: Batch, smoothing: float) -> Tensor:
    """Give the smoothed loss over real target tokens; padding never meets the output layer."""
    hidden = model(batch.source, batch.target_in, batch.source_mask)
    real = batch.target_out != PAD
    hidden = hidden[real]
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return linear_cross_entropy(
        hidden, model.embedding.weight, batch.target_out[real], smoothing=smoothing
    )


@torch.no_grad()
def validation_loss(
    model: Transformer, split: EncodedSplit, config: Config, precision: str
) -> float:
    """Give the mean negative log-likelihood of a real target token in nats, without smoothing."""
    model.eval()
    device = model.embedding.weight.device
    total, tokens = 0.0, 0
    for rows in in_order(split, tokens=config.batch_tokens):
        batch = make_batch(split, rows).to(device)
        with autocast(device, precision):
            logits = model.logits(model(batch.source, batch.target_in, batch.source_mask))
        nll = cross_entropy(
            logits.float().flatten(0, 1),
            batch.target_out.flatten(),
            ignore_index=PAD,
            reduction="sum",
        )
        total, tokens = total + float(nll), tokens + batch.target_tokens
    return total / tokens


def learning_rate(config: Config, step: int, steps: int) -> float:
    """Give the rate at a step counted from 1: a linear warm-up, then the schedule's decay.

    ``linear`` falls to zero behind the last step; ``noam`` is Vaswani et al. 2017, eq. 3.
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


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Give the context in which products run in this precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def snapshots(folder: Path) -> list[Path]:
    """Give the folder's snapshots, oldest first."""
    return sorted(folder.glob("snapshot-*.safetensors"))


def step_of(snapshot: Path) -> int:
    """Give the step at which a snapshot was taken."""
    return int(snapshot.stem.removeprefix("snapshot-"))


def best_snapshot(folder: Path, record: Record) -> Path:
    """Give the snapshot of the lowest validation loss."""
    step = int(min(record.validation, key=lambda seen: seen["loss"])["step"])
    return folder / f"snapshot-{step:07d}.safetensors"


def check_facts(path: Path, held: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a checkpoint of another config, encoding or seed, naming what differs."""
    ours = {**wanted["config"], **{k: wanted[k] for k in ("encoding", "seed")}}
    theirs = {**held.get("config", {}), **{k: held.get(k) for k in ("encoding", "seed")}}
    differing = [
        f"{name} is {theirs.get(name)!r} there and {value!r} here"
        for name, value in ours.items()
        if theirs.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"{path} is a checkpoint of another config: {'; '.join(differing)}; give the config it "
            f"was made with, or another run folder"
        )
