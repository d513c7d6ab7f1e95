"""Running text: windows of it, read by a decoder (causal-lm) or an encoder (masked-lm).

A decoder predicts each next token; an encoder predicts masked ones.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.data.rng import Split
from ropewalk.lab.data.tales import SHORTEST, tales
from ropewalk.lab.data.texts import Texts, load_texts
from ropewalk.lab.decoding.greedy import generate
from ropewalk.lab.loss import row_nll
from ropewalk.lab.results import AttentionMaps, Examples, ExampleSentence, Results
from ropewalk.lab.scoring.significance import FEWEST
from ropewalk.lab.tasks.base import MAPPED_EXAMPLES, MAPPED_TOKENS, Metric
from ropewalk.lab.tasks.language_task import HELD_OUT, SCORED_TOKENS, LanguageBatch, LanguageTask
from ropewalk.lab.tensors import read_tensors, write_tensors
from ropewalk.lab.tokens import EOS, PAD, SPECIAL, Tokens

TALE_LENGTHS = 8  # words of a tale, as a multiple of the trained length
SEED = 0  # of the tales: all training seeds read the same tales, each in its own order
LONGEST_WORD = 64  # tokens to search for the beginning of a word
PASSAGES_SHOWN = 5  # passages in a report
CONTINUED = 20  # approximate number of tokens that a decoder predicts in such a passage


#: What the first token of a word begins with, as written in the vocabulary.
WORD = "▁"


def mean_loss(sums: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of a token in nats."""
    return sums[..., 0] / sums[..., 1]


LOSS = Metric("loss", "loss", mean_loss, higher_is_better=False, digits=3, margin=0.01)
PERPLEXITY = Metric(
    "perplexity", "perplexity", lambda sums: mean_loss(sums).exp(), higher_is_better=False, digits=2
)


class TextTask(LanguageTask):
    """Train on windows of running text and score windows of the same length and longer.

    The documents of a split are concatenated, with an end mark after each. Test windows of every
    length cover the same tokens, so that lengths can be compared.
    """

    tested_metric: ClassVar = LOSS
    columns: ClassVar = ("nll", "tokens")
    goal: ClassVar[str]
    terms: ClassVar[tuple[str, str]]  # what a passage shows, and what is compared with it

    @property
    def scored(self) -> str:
        """Which tokens of the test windows are scored."""
        return "tokens"

    @abstractmethod
    def windows(self, split: str, starts: Tensor, length: int, draw: int) -> LanguageBatch:
        """Make a batch of the windows that begin at these tokens of a split."""

    @property
    def generated(self) -> bool:
        """Whether the text is generated (tales), not a corpus."""
        return self.config.data == "tales"

    @cached_property
    def texts(self) -> Texts:
        """The documents: generated tales, or the texts that the config names."""
        config = self.config
        if not self.generated:
            texts = load_texts(config.data)
            if not texts.test_splits:
                raise ValueError(f"texts {texts.name!r} must have a test split; add a test.txt")
            names = {"train": "train", "validation": "validation", "test": texts.test_splits[0]}
            return replace(texts, splits={name: texts.splits[own] for name, own in names.items()})
        tested = config.test_examples * math.ceil(max(config.length_multiples) / TALE_LENGTHS)
        counts: dict[Split, int] = {
            "train": config.examples,
            "validation": HELD_OUT // TALE_LENGTHS,
            "test": tested,
        }
        words = max(SHORTEST, TALE_LENGTHS * config.train_length)
        return Texts("tales", {s: tuple(tales(n, words, SEED, s)) for s, n in counts.items()})

    @cached_property
    def tokens(self) -> Tokens:
        """The vocabulary of the prepared run."""
        return Tokens.of_run(self.run)

    @cached_property
    def data(self) -> dict[str, Tensor]:
        """The token ids of the prepared run, each split one long tensor."""
        tensors, _ = read_tensors(self.run / "text.safetensors")
        return {name: ids.long() for name, ids in tensors.items()}

    def digest(self) -> str:
        # The number of test tales may change between sessions, so the digest leaves them out.
        held = [(k, v) for k, v in self.texts.splits.items() if not self.generated or k != "test"]
        return hashlib.sha256(json.dumps(held, ensure_ascii=False).encode()).hexdigest()

    def prepare(self) -> Facts:
        splits, length = self.texts.splits, self.config.train_length
        tokens = Tokens.train(splits["train"], self.config.vocabulary)
        ids = {
            name: torch.tensor(
                [i for document in tokens.encode(documents) for i in [*document, EOS]],
                dtype=torch.int32,
            )
            for name, documents in splits.items()
        }
        tested = min(self.config.length_multiples) * length + 1
        for name, least in (("train", 2 * length), ("validation", length + 1), ("test", tested)):
            if len(ids[name]) < least:
                raise ValueError(
                    f"train_length must leave room for windows in the {name} text, got {length}: "
                    f"it has {len(ids[name])} tokens; add more text"
                )
        digest = tokens.save(self.run / "tokenizer.json")
        write_tensors(self.run / "text.safetensors", ids, {})
        return {
            "tokenizer": digest,
            "vocabulary": tokens.size + 1,
            "tokens": {k: len(v) for k, v in ids.items()},
        }

    def plan(self, seed: int, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        length = self.config.train_length
        count = len(self.data["train"]) // length - 1
        first = int(torch.randint(length, (1,), generator=generator))
        order = (torch.randperm(count, generator=generator) * length + first).tolist()
        size = max(1, self.config.batch_tokens // length)
        return [order[i : i + size] for i in range(0, count, size)]

    def batch(self, rows: Sequence[int], draw: int) -> LanguageBatch:
        return self.windows("train", torch.tensor(rows), self.config.train_length, draw)

    def validation_batches(self) -> Iterator[LanguageBatch]:
        length = self.config.train_length
        for starts in self.block_starts("validation", length, HELD_OUT).split(32):
            yield self.windows("validation", starts, length, int(starts[0]))

    def block_starts(self, split: str, length: int, most: int) -> Tensor:
        """Return where blocks of `length` tokens begin in a split, `most` or as many as there are.

        They are spaced evenly over a corpus. Tales are independent, so the first ones are taken.
        """
        known = len(self.data[split]) - 1
        count = min(most, known // length)
        return torch.arange(count) * (length if self.generated else known // max(count, 1))

    def test_starts(self, length: int) -> Tensor:
        """Return where the test windows of this length begin.

        They divide the same blocks at every length: blocks as long as the longest windows that fit.
        """
        known, trained = len(self.data["test"]) - 1, self.config.train_length
        longest = (m * trained for m in self.config.length_multiples if m * trained <= known)
        block = max(longest, default=length)
        starts = self.block_starts("test", block, self.config.test_examples)
        return (starts[:, None] + torch.arange(block // length) * length).flatten()

    @torch.no_grad()
    def evaluate(self, model: Any, split: str, folder: Path) -> Facts:
        model.eval()
        length, known = self.length_of(split), len(self.data["test"]) - 1
        if length > known:
            raise ValueError(
                f"the test text has {known} tokens to predict, but {split} needs {length}"
            )
        device = model.embedding.weight.device
        nll: list[float] = []
        counts: list[int] = []
        for some in self.test_starts(length).split(max(1, SCORED_TOKENS // length)):
            batch = self.windows("test", some, length, int(some[0])).to(device)
            logits = model.logits(model(batch.tokens))
            nll += row_nll(logits, batch.targets).tolist()
            counts += (batch.targets != PAD).sum(1).tolist()
        return {"statistics": {"nll": [round(x, 4) for x in nll], "tokens": counts}}

    def describe_data(self) -> Facts:
        config, facts = self.config, self.data_facts
        held = ", ".join(f"{name} {n:,} tokens" for name, n in facts["tokens"].items())
        windows = {split: self.length_of(split) for split in self.splits}
        lengths = ", ".join(f"{length} ({split})" for split, length in windows.items())
        tested = max(len(self.test_starts(length)) * length for length in windows.values())
        spaced = "" if self.generated else ", evenly spaced"
        rows = [
            ("Text", held),
            ("Documents", ", ".join(f"{k} {len(v):,}" for k, v in self.texts.splits.items())),
            ("Vocabulary", f"{facts['vocabulary'] - 1:,} tokens, byte-pair encoding"),
            ("Trained on", f"windows of {config.train_length} tokens"),
            ("Tested on", f"{tested:,} {self.scored}, in windows of {lengths} tokens{spaced}"),
            *(("Note", note) for note in self.texts.notes),
        ]
        found = self.entries(f"{self.goal} ({self.texts.name})", self.texts.name, rows, "tokens")
        documents = {split: self.documents(split) for split in self.splits}
        # Of fewer documents, windows are tested as if they were independent.
        return found | {"documents": {k: v for k, v in documents.items() if len(set(v)) >= FEWEST}}

    def documents(self, split: str) -> list[int]:
        """Return the test document that the middle of each window of a split is in."""
        length, ends = self.length_of(split), (self.data["test"] == EOS).cumsum(0)
        middles = self.test_starts(length) + length // 2
        return ends[middles[middles < len(ends)]].tolist()

    def passage_starts(self, length: int, count: int) -> list[int]:
        """Return the starts of `count` windows, evenly over the test text, each at a word."""
        room = len(self.data["test"]) - 1 - length
        starts = [room * k // count for k in range(count)] if room >= 0 else []
        for k, place in enumerate(starts):
            ids = self.data["test"][place : room + 1][:LONGEST_WORD].tolist()
            pieces = enumerate(self.tokens.pieces(ids))
            starts[k] += next((i for i, piece in pieces if piece.startswith(WORD)), 0)
        return starts

    def whole_words(self, ids: list[int]) -> list[int]:
        """Return ids without their last word, which may be cut; a single word is unchanged."""
        pieces = self.tokens.pieces(ids)
        last = next((i for i in range(len(ids) - 1, 0, -1) if pieces[i].startswith(WORD)), len(ids))
        return ids[:last]

    def passages(
        self,
        rule: str,
        starts: Sequence[int],
        sources: Sequence[str],
        references: Sequence[str],
        hypotheses: Mapping[str, Sequence[str]],
    ) -> Examples:
        """Return passages that begin at `starts`, with the hypotheses of every encoding by slug."""
        sentences = tuple(
            ExampleSentence(
                index=start,
                source=sources[i],
                reference=references[i],
                hypotheses={slug: texts[i] for slug, texts in hypotheses.items()},
            )
            for i, start in enumerate(starts)
        )
        rule = (
            f"{PASSAGES_SHOWN} passages of {self.config.train_length} tokens, evenly spaced over "
            f"the test text; {rule}; seed {self.config.seeds[0]}"
        )
        return Examples(split=self.splits[0], rule=rule, terms=self.terms, sentences=sentences)

    def attention(self, results: Results) -> AttentionMaps:
        length = min(self.config.train_length, MAPPED_TOKENS)
        shown = []
        for start in self.passage_starts(length, MAPPED_EXAMPLES):
            ids = self.data["test"][start : start + length].tolist()
            shown.append((start, ids, self.tokens.pieces(ids)))
        rule = f"{MAPPED_EXAMPLES} passages of {length} tokens, evenly spaced over the test text"
        return self.attention_over(results, rule, shown)


class CausalText(TextTask):
    """Predict each token of a window from the tokens before it, scored by perplexity."""

    metrics: ClassVar = (PERPLEXITY, LOSS)
    goal: ClassVar = "the next token of running text"
    terms: ClassVar = ("text", "continuation")

    def windows(self, split: str, starts: Tensor, length: int, draw: int) -> LanguageBatch:
        ids = self.data[split][starts[:, None] + torch.arange(length + 1)]
        return LanguageBatch(ids[:, :-1], ids[:, 1:])

    def examples(self, results: Results) -> Examples:
        length, decode = self.config.train_length, self.tokens.decode
        starts = self.passage_starts(length, PASSAGES_SHOWN)
        ids = [self.data["test"][s : s + length].tolist() for s in starts]
        # The prompt ends at the end of a word; all remaining tokens are predicted.
        predicted = min(CONTINUED, length // 2)
        prompts = [self.whole_words(row[: length - predicted]) for row in ids]
        rests = [row[len(prompt) :] for row, prompt in zip(ids, prompts, strict=True)]
        continuations = {
            slug: [
                decode(self.whole_words(row))
                for prompt in prompts
                for row in generate(model, torch.tensor([prompt]), max_tokens=length - len(prompt))
            ]
            for slug, model in self.first_models(results)
        }
        rule = (
            f"about the last {predicted} are predicted, the likeliest token each time, and shown "
            f"up to their last complete word"
        )
        references = [decode(self.whole_words(rest)) for rest in rests]
        return self.passages(rule, starts, [*map(decode, prompts)], references, continuations)


def masked(ids: Tensor, mask: int, ratio: float, seed: int) -> LanguageBatch:
    """Return rows of ids `(B, S)` with chosen tokens masked, which are the targets.

    A share of each row's tokens, at least one, is chosen: 80 % of these are masked, 10 % replaced
    by a random word and 10 % unchanged. Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1.
    """
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(ids.shape, generator=generator)
    chosen = (draws < ratio) | (draws == draws.amin(1, keepdim=True))
    how = torch.rand(ids.shape, generator=generator)
    others = torch.randint(len(SPECIAL), mask, ids.shape, generator=generator)
    changed = torch.where(how < 0.8, mask, torch.where(how < 0.9, others, ids))
    return LanguageBatch(
        torch.where(chosen, changed, ids), torch.where(chosen, ids, torch.tensor(PAD))
    )


class MaskedText(TextTask):
    """Fill in masked tokens of a window from all others, chosen as in BERT (`masked`)."""

    metrics: ClassVar = (LOSS,)
    goal: ClassVar = "masked tokens of running text"
    terms: ClassVar = ("masked", "text")

    @property
    def mask(self) -> int:
        """The id of the mask token, after the ids of all words."""
        return self.vocabulary - 1

    @property
    def scored(self) -> str:
        return f"tokens, of which {100 * self.config.mask_ratio:g} % are masked and scored"

    def windows(self, split: str, starts: Tensor, length: int, draw: int) -> LanguageBatch:
        ids = self.data[split][starts[:, None] + torch.arange(length)]
        seed = (draw * 1_000_003 + int(starts[0])) % 2**63
        return masked(ids, self.mask, self.config.mask_ratio, seed)

    @torch.no_grad()
    def examples(self, results: Results) -> Examples:
        length = self.config.train_length
        starts = self.passage_starts(length, PASSAGES_SHOWN)
        batch = self.windows("test", torch.tensor(starts), length, draw=SEED)
        asked = batch.targets != PAD
        right = torch.where(asked, batch.targets, batch.tokens)
        ends = [len(self.whole_words(row)) for row in right.tolist()]

        def texts(ids: Tensor) -> list[str]:
            return [self._text(row[:end]) for row, end in zip(ids.tolist(), ends, strict=True)]

        filled = {
            slug: texts(
                torch.where(asked, model.logits(model(batch.tokens)).argmax(-1), batch.tokens)
            )
            for slug, model in self.first_models(results)
        }
        rule = "the likeliest token at each mask"
        return self.passages(rule, starts, texts(batch.tokens), texts(right), filled)

    def _text(self, ids: Sequence[int]) -> str:
        parts: list[list[int]] = [[]]
        for i in ids:
            parts[-1].append(i) if i != self.mask else parts.append([])
        return " [mask] ".join(self.tokens.decode(part) for part in parts)
