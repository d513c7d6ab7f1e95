"""Synthetic tasks: prompts and answers, scored by exact match, also beyond the trained length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import eq
from pathlib import Path
from typing import Any, ClassVar

import torch

from ropewalk.files import Facts
from ropewalk.lab.data.batches import EncodedSplit, Plan, gather_batches, read_splits, write_splits
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, SequenceTask, draw_examples
from ropewalk.lab.data.rng import Split
from ropewalk.lab.decoding.greedy import answer
from ropewalk.lab.results import AttentionMaps, Examples, ExampleSentence, Results
from ropewalk.lab.tasks.base import MAPPED_TOKENS, Metric, at_quartiles
from ropewalk.lab.tasks.language_task import (
    HELD_OUT,
    SCORED_TOKENS,
    LanguageBatch,
    LanguageTask,
    pad_examples,
)
from ropewalk.lab.tokens import BOS, EOS

EXAMPLES_SHOWN = 3  # examples of each split in a report
SEED = 0  # of the data: all training seeds see the same examples, each in its own order


# Statistics: examples right, examples, answer tokens right at their position, answer tokens.
EXACT = Metric(
    "exact",
    "exact match",
    lambda n: 100 * n[..., 0] / n[..., 1],
    unit="%",
    floor=5,
    solved=95,
    margin=2.0,
)
TOKENS = Metric("tokens", "tokens right", lambda n: 100 * n[..., 2] / n[..., 3], unit="%")


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
            size = self.length_of(split)
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
                f"{self.sequence.size_unit}, but {split} needs {self.length_of(split)}"
            )
        held = self.data[split]
        max_tokens = [len(target) for target in held.target]
        found = answer(model, held.source, max_tokens, SCORED_TOKENS)
        pairs = list(zip(found, held.target, strict=True))
        return {
            "statistics": {
                "exact": [int(ids == target) for ids, target in pairs],
                "examples": [1] * len(pairs),
                "right": [sum(map(eq, ids, target)) for ids, target in pairs],
                "tokens": [len(target) for _, target in pairs],
            },
            "predictions": found,
        }

    def describe_data(self) -> Facts:
        config, sequence = self.config, self.sequence
        sizes = f"1 to {config.train_length} {sequence.size_unit}, {config.examples:,} examples"
        tested = ", ".join(f"{self.length_of(s)} ({s})" for s in self.splits if s in self.data)
        shown = self.data["validation"]
        facts = [
            ("Task", f"{config.task}: {sequence.description}"),
            ("For example", f"{self._text(shown.source[0])} {self._text(shown.target[0])}"),
            ("Trained on", sizes),
            (
                "Tested on",
                f"{config.test_examples:,} examples for each number of "
                f"{sequence.size_unit}: {tested}",
            ),
            ("Vocabulary", f"{len(sequence.words):,} words"),
            ("Overlap of splits", "none: no prompt is in more than one split"),
            ("Source", sequence.source),
        ]
        about = f"{config.task} of up to {config.train_length} {sequence.size_unit}"
        return self.entries(about, config.task, facts, sequence.size_unit)

    def examples(self, results: Results) -> Examples:
        seed = self.config.seeds[0]
        predictions = {
            row.slug: {
                split: self.evaluation(split, row.cell(seed).folder(self.run)).get("predictions")
                for split in self.splits
            }
            for row in results.encodings
        }
        sentences = [
            ExampleSentence(
                index=i,
                split=split,
                source=self._text(self.data[split].source[i]),
                reference=self._text(self.data[split].target[i]),
                hypotheses={
                    slug: self._text(answers[i])
                    for slug, of_splits in predictions.items()
                    if (answers := of_splits[split]) is not None
                },
            )
            for split in self.splits
            if split in self.data
            for i in range(min(EXAMPLES_SHOWN, len(self.data[split])))
        ]
        return Examples(
            split=self.splits[0],
            rule=f"the first {EXAMPLES_SHOWN} examples of each length; answers of seed {seed}",
            terms=("prompt", "answer"),
            sentences=tuple(sentences),
        )

    def attention(self, results: Results) -> AttentionMaps:
        split = self.data["validation"]
        whole = [[*p, *a] for p, a in zip(split.source, split.target, strict=True)]
        rule = (
            f"the validation examples at the quartiles of length, among those with at most "
            f"{MAPPED_TOKENS} tokens; the model reads each prompt and its right answer"
        )
        words, chosen = self.sequence.words, at_quartiles([*map(len, whole)], MAPPED_TOKENS)
        shown = [(i, whole[i], [words[token] for token in whole[i]]) for i in chosen]
        return self.attention_over(results, rule, shown)

    def _text(self, ids: Sequence[int]) -> str:
        """Return ids as words, without the begin mark."""
        words = self.sequence.words
        return " ".join(words[i] for i in ids if i != BOS)


def _batch(split: EncodedSplit, rows: Sequence[int]) -> LanguageBatch:
    return pad_examples([(split.source[i], [*split.target[i], EOS]) for i in rows])
