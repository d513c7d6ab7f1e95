"""The interface of a task: everything that training and comparison call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ropewalk.files import MOST_DATA_BYTES, Facts, read_checked_json
from ropewalk.lab.config import Config
from ropewalk.lab.data.stream import Progress, silent
from ropewalk.lab.models import load_model
from ropewalk.lab.results import (
    AttentionMap,
    AttentionMaps,
    EncodingMaps,
    Examples,
    MappedSentence,
    Results,
)
from ropewalk.lab.tensors import read_checksum

MAPPED_EXAMPLES = 3  # examples whose attention is drawn
MAPPED_TOKENS = 40  # maximum length of such an example: cells of a larger map are hard to see


class TaskBatch(Protocol):
    """The data of some rows for one pass through the model."""

    @property
    def target_tokens(self) -> int:
        """Number of tokens that the model predicts."""

    def to(self: B, device: torch.device) -> B:
        """Return the batch on this device."""


B = TypeVar("B", bound=TaskBatch)


@dataclass(frozen=True)
class Metric:
    """A score: its key in results, its display name, and how it is computed.

    `score` maps sums over items `(..., C)` of the task's statistics to scores `(...)`. It is None
    if the score has no such statistics and is not tested. `unit` is written after the number.
    Below `floor` nothing has been learned, so differences mean little. From `solved` on, the task
    counts as solved. A tested metric has a `margin`: the largest difference that does not matter.
    """

    key: str
    name: str
    score: Callable[[Tensor], Tensor] | None = None
    higher_is_better: bool = True
    unit: str = ""
    digits: int = 1
    floor: float | None = None
    solved: float | None = None
    margin: float = 0.0

    def facts(self) -> Facts:
        """Return the fields that a report needs."""
        names = ("key", "name", "unit", "higher_is_better", "digits", "floor", "solved")
        return {name: getattr(self, name) for name in names}


class Task(ABC):
    """A task in its run folder: `prepare` writes the data there, other methods read it.

    Rows are indices into the training data. A subclass defines how they are drawn, how a batch is
    made of them and its loss. A trained model is evaluated split by split.
    """

    metrics: ClassVar[tuple[Metric, ...]]  # the first is the headline
    tested_metric: ClassVar[Metric]  # its differences are tested for significance
    tuned_metric: ClassVar[Metric] = Metric(  # decides between decoding settings
        "loss", "validation loss", higher_is_better=False, digits=3
    )
    evaluation_phase: ClassVar[str] = "scoring"  # what a cell does after training

    def __init__(self, config: Config, run: Path) -> None:
        self.config, self.run = config, run
        self.progress: Progress = silent  # receives the progress of `digest` and `prepare`

    # The data.

    @abstractmethod
    def digest(self) -> str:
        """Read or draw the data, check it and return its digest; write no file."""

    @abstractmethod
    def prepare(self) -> Facts:
        """Write what cells need into the run folder and return facts about the data."""

    @property
    def data_facts(self) -> Facts:
        """The facts that `prepare` returned, including "vocabulary"."""
        return read_checked_json(self.run / "corpus.json", "digest", "vocabulary")

    @cached_property
    def vocabulary(self) -> int:
        """Number of tokens in the vocabulary of the prepared run."""
        return int(self.data_facts["vocabulary"])

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that a trained model is scored on."""

    def cautions(self) -> list[str]:
        """Return warnings about data whose scores mean little."""
        return []

    # Training.

    @abstractmethod
    def plan(self, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        """Return one epoch's batches as lists of rows; every epoch has the same number."""

    @abstractmethod
    def batch(self, rows: Sequence[int], draw: int) -> TaskBatch:
        """Make a batch of rows; `draw` seeds its random parts, such as masks."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the training loss, a mean over the batch's target tokens."""

    @abstractmethod
    def validation_loss(self, model: nn.Module, precision: str) -> float:
        """Return the mean negative log-likelihood of a validation target token, in nats."""

    # Evaluation.

    def validation_scores(self, model: nn.Module, configs: Sequence[Config]) -> list[Facts]:
        """Return the score of each config's decoding on validation data, under `tuned_metric.key`.

        The configs differ only in decoding settings, not in the snapshots that the model averages.
        """
        return [{"loss": round(self.validation_loss(model, "float32"), 5)}] * len(configs)

    @abstractmethod
    def evaluate(self, model: nn.Module, split: str, folder: Path) -> Facts:
        """Run a model on a split; write long outputs to files in `folder` and return the rest.

        Raises ValueError if the model cannot, for example if its encoding refuses the positions.
        """

    def evaluate_diverged(self, split: str, folder: Path) -> Facts:
        """Return what replaces the answers if the training diverged."""
        return {"no_result": "the training diverged"}

    def is_evaluated(self, split: str, folder: Path) -> bool:
        """Return whether the split has answers of this folder's model and decoding config."""
        if not (folder / f"{split}.json").exists():
            return False
        held, made = self.evaluation(split, folder), self.made_from(split, folder)
        return bool(held["decoding"] == self.config.decoding() and held.get("made_from") == made)

    def made_from(self, split: str, folder: Path) -> Facts:
        """Return the checksums of the model and the data that a split's score is made from."""
        model = folder / "model.safetensors"
        return {
            "model": read_checksum(model) if model.exists() else None,
            "data": self.data_facts["digest"],
        }

    def evaluation(self, split: str, folder: Path) -> Facts:
        """Read the file of a split: what `evaluate` returned, and the settings it ran with."""
        path = folder / f"{split}.json"
        return read_checked_json(path, "decoding", most_bytes=MOST_DATA_BYTES)

    @abstractmethod
    def score(self, split: str, folder: Path) -> Facts:
        """Score the answers in a cell's folder, in the form that results store.

        Returns a value for each metric's key, the statistics of each item, and further details.
        If there is no result, "no_result" has the reason.
        """

    @classmethod
    @abstractmethod
    def statistics_of(cls, statistics: Mapping[str, Sequence[Any]]) -> Tensor:
        """Return the statistics `(N, C)` that `metrics` use, from those that `score` returned."""

    # What a comparison reports.

    @abstractmethod
    def describe_data(self) -> Facts:
        """Return the entries about data and splits in the results."""

    @abstractmethod
    def examples(self, results: Results) -> Examples:
        """Choose examples by rule, with the outputs of every encoding's first seed."""

    @abstractmethod
    def attention(self, results: Results) -> AttentionMaps:
        """Return every head's attention over a few examples, for every encoding's first seed."""

    def first_models(self, results: Results) -> Iterator[tuple[str, Any]]:
        """Yield each encoding's slug and the model of its first seed, unless it diverged."""
        for row in results.encodings:
            path = row.cell(self.config.seeds[0]).folder(self.run) / "model.safetensors"
            if path.exists():
                yield row.slug, load_model(path, torch.device("cpu"))[0]

    def maps_of_first_models(
        self,
        results: Results,
        rule: str,
        sentences: Sequence[MappedSentence],
        maps: Callable[[Any, int], dict[str, AttentionMap]],
    ) -> AttentionMaps:
        """Return what `maps` gives for a model and the place of a sentence."""
        encodings = {
            slug: EncodingMaps(
                seed=self.config.seeds[0],
                sentences=tuple(maps(model, place) for place in range(len(sentences))),
            )
            for slug, model in self.first_models(results)
        }
        return AttentionMaps(rule=rule, sentences=tuple(sentences), encodings=encodings)


def attention_map(
    rows: Sequence[str], columns: Sequence[str], layers: list[Tensor]
) -> AttentionMap:
    """Return the first example's weights `(B, H, S, T)` of each layer, with its tokens."""
    weights = [
        [[[round(w, 3) for w in row] for row in head] for head in layer[0].tolist()]
        for layer in layers
    ]
    return AttentionMap(rows=tuple(rows), columns=tuple(columns), weights=weights)


def at_quartiles(lengths: Sequence[int], most: int) -> list[int]:
    """Return the items at the quartiles of length, among those of at most this length."""
    order = sorted((i for i, n in enumerate(lengths) if n <= most), key=lambda i: lengths[i])
    shares = [(k + 1) / (MAPPED_EXAMPLES + 1) for k in range(MAPPED_EXAMPLES)]
    return list(dict.fromkeys(order[int(share * len(order))] for share in shares if order))
