"""Common parts of tasks with a single stack: batches, loss, scores by length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.data.batches import pad
from ropewalk.lab.loss import autocast, row_nll, token_loss
from ropewalk.lab.results import AttentionMap, AttentionMaps, MappedSentence, Results
from ropewalk.lab.tasks.base import Task, attention_map
from ropewalk.lab.tokens import PAD

HELD_OUT = 200  # examples or windows for the validation loss
SCORED_TOKENS = 4096  # maximum number of tokens of a batch in scoring


@dataclass(frozen=True)
class LanguageBatch:
    """Token ids `(B, S)` and the target at each position, PAD where nothing is predicted."""

    tokens: Tensor
    targets: Tensor

    @property
    def target_tokens(self) -> int:
        """Number of tokens to predict."""
        return int((self.targets != PAD).sum())

    def to(self, device: torch.device) -> LanguageBatch:
        """Return the batch on this device."""
        return LanguageBatch(self.tokens.to(device), self.targets.to(device))


class LanguageTask(Task):
    """A task with a single stack, scored at multiples of the trained length: x1, x2, …"""

    columns: ClassVar[tuple[str, ...]]  # the statistics of an item

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(f"x{multiple}" for multiple in self.config.length_multiples)

    def length_of(self, split: str) -> int:
        """Return the length of a split's items, a multiple of the trained length."""
        return int(split.removeprefix("x")) * self.config.train_length

    @abstractmethod
    def validation_batches(self) -> Iterator[LanguageBatch]:
        """Yield the batches for the validation loss."""

    def loss(self, model: Any, batch: LanguageBatch) -> Tensor:
        return token_loss(model(batch.tokens), model.embedding.weight, batch.targets)

    @torch.no_grad()
    def validation_loss(self, model: Any, precision: str) -> float:
        model.eval()
        device = model.embedding.weight.device
        total, tokens = 0.0, 0
        for each in self.validation_batches():
            batch = each.to(device)
            with autocast(device, precision):
                logits = model.logits(model(batch.tokens))
            total += float(row_nll(logits, batch.targets).sum())
            tokens += batch.target_tokens
        return total / tokens

    def score(self, split: str, folder: Path) -> Facts:
        held = self.evaluation(split, folder)
        if "no_result" in held:
            return {"no_result": held["no_result"]}
        sums = self.statistics_of(held["statistics"]).sum(0)
        scores: Facts = {
            metric.key: round(metric.score(sums).item(), 5)
            for metric in self.metrics
            if metric.score is not None
        }
        seconds = round(held["seconds"], 2)
        return scores | {"decode_seconds": seconds, "statistics": held["statistics"]}

    @classmethod
    def statistics_of(cls, statistics: Mapping[str, Sequence[Any]]) -> Tensor:
        columns = [statistics[name] for name in cls.columns]
        return torch.tensor(columns, dtype=torch.float64).t()

    def entries(self, about: str, name: str, rows: Sequence[tuple[str, str]], unit: str) -> Facts:
        """Return the entries about data, splits and scored lengths in the results."""
        of = {split: self.length_of(split) for split in self.splits}
        return {
            "about": about,
            "corpus": {"name": name, "facts": [list(row) for row in rows]},
            "splits": list(self.splits),
            "lengths": {"unit": unit, "trained": self.config.train_length, "of": of},
        }

    def attention_over(
        self, results: Results, rule: str, shown: Sequence[tuple[int, list[int], list[str]]]
    ) -> AttentionMaps:
        """Return attention over the examples in `shown`: (index, token ids, token labels)."""

        def maps(model: Any, place: int) -> dict[str, AttentionMap]:
            _, ids, labels = shown[place]
            # Weights of linear attention may be below 0 or above 1.
            layers = [layer.clamp(0, 1) for layer in model.attention_maps(torch.tensor([ids]))]
            return {"self": attention_map(labels, labels, layers)}

        sentences = [
            MappedSentence(index=i, source=" ".join(labels).replace(" ▁", " ").lstrip("▁"))
            for i, _, labels in shown
        ]
        rule = f"{rule}; every layer and head; seed {self.config.seeds[0]}"
        return self.maps_of_first_models(results, rule, sentences, maps)


def pad_examples(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> LanguageBatch:
    """Make a batch of prompts and answers; only the answers are predicted."""
    tokens = pad([[*prompt, *answer][:-1] for prompt, answer in rows])
    targets = pad([[PAD] * (len(prompt) - 1) + list(answer) for prompt, answer in rows])
    return LanguageBatch(tokens, targets)
