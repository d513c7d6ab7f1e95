"""Synthetic tasks: prompts and answers, scored by exact match, also beyond the trained length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.data.batches import EncodedSplit, Plan, gather_batches, read_splits, write_splits
from ropewalk.lab.data.generated_tasks import (
    SEQUENCE_TASKS,
    Example,
    SequenceTask,
    draw_examples,
    example_text,
)
from ropewalk.lab.data.rng import Split
from ropewalk.lab.decoding.greedy import answer
from ropewalk.lab.results import Results
from ropewalk.lab.tasks.base import Metric
from ropewalk.lab.tasks.language_task import (
    HELD_OUT,
    MAPPED_EXAMPLES,
    MAPPED_TOKENS,
    SCORED_TOKENS,
    LanguageBatch,
    LanguageTask,
    pad_examples,
)
from ropewalk.lab.tokens import EOS

EXAMPLES_SHOWN = 3  # examples of each split in a report
SEED = 0  # of the data: all training seeds see the same examples, each in its own order


def _exact_match(sums: Tensor) -> Tensor:
    """Return the share of examples whose complete answer is right, in percent."""
    return 100 * sums[..., 0] / sums[..., 1]


def _token_accuracy(sums: Tensor) -> Tensor:
    """Return the share of answer tokens that are right at their position, in percent."""
    return 100 * sums[..., 2] / sums[..., 3]


EXACT = Metric("exact", "exact match", _exact_match, unit="%", floor=5, solved=95)
TOKENS = Metric("tokens", "tokens right", _token_accuracy, unit="%")


class Generated(LanguageTask):
    """Train a decoder on generated examples and test it on longer ones."""

    metrics: ClassVar = (EXACT, TOKENS)
    tested_metric: ClassVar = EXACT
    columns: ClassVar = ("exact", "examples", "right", "tokens")
    evaluation_phase: ClassVar = "answering"

    @property
    def sequence(self) -> SequenceTask:
        """The definition of the generated task."""
        return SEQUENCE_TASKS[self.config.task]

    def draw(self, split: Split, lengths: tuple[int, int], count: int) -> EncodedSplit:
        """Return examples of these sizes as token ids."""
        drawn = draw_examples(
            self.config.task, split=split, lengths=lengths, count=count, seed=SEED
        )
        # `_batch` adds the end mark.
        return EncodedSplit([list(e.prompt) for e in drawn], [list(e.answer[:-1]) for e in drawn])

    @cached_property
    def drawn_splits(self) -> dict[str, EncodedSplit]:
        """Training and validation examples, newly drawn."""
        task, length, most = self.config.task, self.config.train_length, self.sequence.max_size
        if most is not None and length > most:
            raise ValueError(
                f"train_length must be at most {most} {self.sequence.size_unit} for {task}, "
                f"got {length}"
            )
        upto = (1, length)
        return {
            "train": self.draw("train", upto, self.config.examples),
            "validation": self.draw("validation", upto, HELD_OUT),
        }

    @cached_property
    def data(self) -> dict[str, EncodedSplit]:
        """The token ids of the prepared run."""
        return read_splits(self.run / "sequences.safetensors")

    @cached_property
    def lengths_in_training(self) -> list[int]:
        """Number of tokens of each training example, including the end mark."""
        train = self.data["train"]
        return [len(p) + len(a) + 1 for p, a in zip(train.source, train.target, strict=True)]

    def digest(self) -> str:
        held = [(split.source, split.target) for split in self.drawn_splits.values()]
        return hashlib.sha256(repr(held).encode()).hexdigest()

    def prepare(self) -> Facts:
        splits = dict(self.drawn_splits)
        for split in self.splits:
            size = self.multiple(split) * self.config.train_length
            if self.sequence.max_size is None or size <= self.sequence.max_size:
                splits[split] = self.draw("test", (size, size), self.config.test_examples)
        write_splits(self.run / "sequences.safetensors", splits)
        return {"vocabulary": len(self.sequence.words)}

    def plan(self, seed: int, epoch: int) -> Plan:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        lengths = self.lengths_in_training
        order = torch.randperm(len(lengths), generator=generator).tolist()
        order.sort(key=lambda i: lengths[i])
        return gather_batches(order, lengths, self.config.batch_tokens, generator)

    def batch(self, rows: Sequence[int], draw: int) -> LanguageBatch:
        return _batch(self.data["train"], rows)

    def validation_batches(self) -> Iterator[LanguageBatch]:
        split = self.data["validation"]
        order = sorted(range(len(split)), key=lambda i: len(split.source[i]))
        for start in range(0, len(order), 32):
            yield _batch(split, order[start : start + 32])

    def evaluate(self, model: Any, split: str, folder: Path) -> Facts:
        if split not in self.data:
            raise ValueError(
                f"{self.config.task} has at most {self.sequence.max_size} "
                f"{self.sequence.size_unit}, but {split} needs "
                f"{self.multiple(split) * self.config.train_length}"
            )
        held = self.data[split]
        max_tokens = [len(target) for target in held.target]
        found = answer(model, held.source, max_tokens, SCORED_TOKENS)
        pairs = list(zip(found, held.target, strict=True))
        return {
            "statistics": {
                "exact": [int(ids == target) for ids, target in pairs],
                "examples": [1] * len(pairs),
                "right": [_matching_tokens(ids, target) for ids, target in pairs],
                "tokens": [len(target) for _, target in pairs],
            },
            "predictions": found,
        }

    def describe_data(self) -> Facts:
        config, sequence = self.config, self.sequence
        sizes = f"1 to {config.train_length} {sequence.size_unit}, {config.examples:,} examples"
        tested = ", ".join(
            f"{self.multiple(split) * config.train_length} ({split})"
            for split in self.splits
            if split in self.data
        )
        facts = [
            ("Task", f"{config.task}: {sequence.description}"),
            ("For example", self._example_text(self.data["validation"], 0)),
            ("Trained on", sizes),
            (
                "Tested on",
                f"{config.test_examples:,} examples for each number of "
                f"{sequence.size_unit}: {tested}",
            ),
            ("Vocabulary", f"{len(sequence.words):,} words"),
            ("Overlap of splits", "none: no prompt is in more than one split"),
        ]
        if sequence.source:
            facts.append(("Source", sequence.source))
        return {
            "about": f"{config.task} of up to {config.train_length} {sequence.size_unit}",
            "corpus": {"name": config.task, "facts": [list(each) for each in facts]},
            "splits": list(self.splits),
            "lengths": self.length_facts(sequence.size_unit),
        }

    def examples(self, results: Results) -> Facts:
        seed = self.config.seeds[0]
        predictions = {
            row.slug: {
                split: self.evaluation(split, row.cell(seed).folder(self.run))
                for split in self.splits
            }
            for row in results.encodings
        }
        sentences = [
            {
                "index": i,
                "split": split,
                "source": self._text(self.data[split].source[i]),
                "reference": self._text(self.data[split].target[i]),
                "hypotheses": {
                    slug: self._text(held[split]["predictions"][i])
                    for slug, held in predictions.items()
                    if "predictions" in held[split]
                },
            }
            for split in self.splits
            if split in self.data
            for i in range(min(EXAMPLES_SHOWN, len(self.data[split])))
        ]
        rule = f"the first {EXAMPLES_SHOWN} examples of each length; answers of seed {seed}"
        terms = ("prompt", "answer")
        return {"split": self.splits[0], "rule": rule, "terms": terms, "sentences": sentences}

    def attention(self, results: Results) -> Facts:
        split = self.data["validation"]
        whole = [[*p, *a] for p, a in zip(split.source, split.target, strict=True)]
        order = sorted(
            (i for i, ids in enumerate(whole) if len(ids) <= MAPPED_TOKENS),
            key=lambda i: len(whole[i]),
        )
        shares = [(k + 1) / (MAPPED_EXAMPLES + 1) for k in range(MAPPED_EXAMPLES)]
        chosen = list(dict.fromkeys(order[int(share * len(order))] for share in shares if order))
        rule = (
            f"the validation examples at the quartiles of length, among those with at most "
            f"{MAPPED_TOKENS} tokens; the model reads each prompt and its right answer"
        )
        words = self.sequence.words
        shown = [(i, whole[i], [words[token] for token in whole[i]]) for i in chosen]
        return self.attention_facts(results, rule, shown)

    def _example_text(self, split: EncodedSplit, i: int) -> str:
        example = Example(tuple(split.source[i]), (*split.target[i], EOS))
        return example_text(self.config.task, example)

    def _text(self, ids: Sequence[int]) -> str:
        words = self.sequence.words
        return " ".join(words[i] for i in ids if words[i] != words[1])


def _batch(split: EncodedSplit, rows: Sequence[int]) -> LanguageBatch:
    return pad_examples([(split.source[i], [*split.target[i], EOS]) for i in rows])


def _matching_tokens(found: Sequence[int], wanted: Sequence[int]) -> int:
    return sum(a == b for a, b in zip(found, wanted, strict=False))
