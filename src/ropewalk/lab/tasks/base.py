"""What a task is to the lab: all that training and comparison have to ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ropewalk.files import MOST_DATA_BYTES, Facts, read_checked_json
from ropewalk.lab.checkpoint import read_checksum
from ropewalk.lab.config import Config
from ropewalk.lab.former_names import current_evaluation


class TaskBatch(Protocol):
    """What a task makes of some rows for one pass through the model."""

    @property
    def target_tokens(self) -> int:
        """Number of tokens that the model is to predict."""

    def to(self: B, device: torch.device) -> B:
        """Give the batch on this device."""


B = TypeVar("B", bound=TaskBatch)


@dataclass(frozen=True)
class Metric:
    """A score: its key in results, its name for people, and how it is formed.

    `score` takes sums over items `(..., C)` of the task's statistics to scores `(...)`; None
    where a score has no such statistics and is not tested. `unit` stands behind the number.
    `floor`: below it nothing has been learned, so that differences mean little; `solved`: from
    it on a task is solved.
    """

    key: str
    name: str
    score: Callable[[Tensor], Tensor] | None = None
    higher_is_better: bool = True
    unit: str = ""
    digits: int = 1
    floor: float | None = None
    solved: float | None = None

    def facts(self) -> Facts:
        """Give what a report has to know."""
        names = ("key", "name", "unit", "higher_is_better", "digits", "floor", "solved")
        return {name: getattr(self, name) for name in names}


class Task(ABC):
    """A task in its run folder, which `prepare` fills; all else is read from there.

    Rows are places in the training data. A subclass says how they are drawn, what a batch of them
    is and what the model is to make of it; a finished model is evaluated split by split.
    """

    metrics: ClassVar[tuple[Metric, ...]]  # the first is the headline
    tested_metric: ClassVar[Metric]  # the one whose differences are tested
    tuned_metric: ClassVar[Metric] = Metric(  # what decoding settings are chosen by
        "loss", "validation loss", higher_is_better=False, digits=3
    )
    evaluation_phase: ClassVar[str] = "scoring"  # what a cell does behind training

    def __init__(self, config: Config, run: Path) -> None:
        self.config, self.run = config, run

    # What the data is.

    @abstractmethod
    def digest(self) -> str:
        """Read or draw the data, check that it will do, and give its digest: no file is written."""

    @abstractmethod
    def prepare(self) -> Facts:
        """Write what cells need into the run folder and give what is to be known of the data."""

    @property
    def data_facts(self) -> Facts:
        """What `prepare` gave, "vocabulary" among it."""
        return read_checked_json(self.run / "corpus.json", "digest", "vocabulary")

    @cached_property
    def vocabulary(self) -> int:
        """Number of tokens that a model of the prepared run has to know."""
        return int(self.data_facts["vocabulary"])

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that a finished model is scored on."""

    def cautions(self) -> list[str]:
        """Say what in the data makes its scores mean little, if anything does."""
        return []

    # How a cell trains.

    @abstractmethod
    def plan(self, seed: int, epoch: int) -> list[list[int]]:
        """Give one epoch's batches as lists of rows, the same number in every epoch."""

    @abstractmethod
    def batch(self, rows: Sequence[int], draw: int) -> TaskBatch:
        """Make a batch of rows; what is drawn for it, such as masks, `draw` determines."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Give the loss that is trained on, a mean over the batch's target tokens."""

    @abstractmethod
    def validation_loss(self, model: nn.Module, precision: str) -> float:
        """Give the mean negative log-likelihood of a target token in nats, on validation data."""

    # What becomes of a finished model.

    def validation_scores(self, model: nn.Module, configs: Sequence[Config]) -> list[Facts]:
        """Score validation data as each of these configs decodes, under `tuned_metric`'s key.

        They differ in decoding alone, and not in which snapshots the model is the mean of.
        """
        return [{"loss": round(self.validation_loss(model, "float32"), 5)}] * len(configs)

    @abstractmethod
    def evaluate(self, model: nn.Module, split: str, folder: Path) -> Facts:
        """Let a model answer a split; what is long goes to files in `folder`, the rest is given.

        Raises ValueError where the model cannot, as with positions that its encoding refuses.
        """

    def evaluate_diverged(self, split: str, folder: Path) -> Facts:
        """Give what stands for the answers of a training that diverged."""
        return {"no_result": "the training diverged"}

    def is_evaluated(self, split: str, folder: Path) -> bool:
        """Tell whether the split's answers are there, made as the config says by the model there.

        What an earlier version wrote does not name its model, and is taken to be of this one.
        """
        if not (folder / f"{split}.json").exists():
            return False
        held, made = self.evaluation(split, folder), self.made_from(split, folder)
        if held["decoding"] != self.config.decoding():
            return False
        return "made_from" not in held or bool(held["made_from"] == made)

    def made_from(self, split: str, folder: Path) -> Facts:
        """Give what a split's score is made from: checksums of the model and of the data."""
        model = folder / "model.safetensors"
        return {
            "model": read_checksum(model) if model.exists() else None,
            "data": self.data_facts["digest"],
        }

    def evaluation(self, split: str, folder: Path) -> Facts:
        """Read what the file of a split holds: what `evaluate` gave, and how it was asked."""
        held = read_checked_json(folder / f"{split}.json", most_bytes=MOST_DATA_BYTES)
        if not isinstance(held.get("decoding", {}), dict):
            raise ValueError(f"{folder / f'{split}.json'} holds no scores; delete it")
        return current_evaluation(held)

    @abstractmethod
    def score(self, split: str, folder: Path) -> Facts:
        """Score the answers of a cell, whose folder this is, as results keep it.

        A value for each metric's key, the statistics of each item, and whatever else tells more.
        Where there is no result, "no_result" has the reason.
        """

    @classmethod
    @abstractmethod
    def statistics_of(cls, scores: Facts) -> Tensor:
        """Form the statistics `(N, C)` that `metrics` score, from what `score` gave."""

    # What a comparison tells of the task.

    @abstractmethod
    def describe_data(self) -> Facts:
        """Give what results hold of the data and the splits."""

    @abstractmethod
    def examples(self, results: Facts) -> Facts:
        """Choose examples by rule, with what every encoding's first seed makes of them."""

    @abstractmethod
    def attention(self, results: Facts) -> Facts:
        """Give every head's attention over a few examples, for every encoding's first seed."""
