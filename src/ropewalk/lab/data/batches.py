"""Sentence pairs as token ids, in batches of similar length and similar size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.lab.data.store import MappedSplit
from ropewalk.lab.tensors import read_tensors, write_tensors
from ropewalk.lab.tokens import BOS, EOS, PAD

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class EncodedSplit:
    """Token ids of a split's sentences, without begin and end marks."""

    source: list[list[int]]
    target: list[list[int]]

    def __len__(self) -> int:
        return len(self.source)

    def sizes(self) -> Rows:
        """Return the number of tokens of both sides, `(pairs, 2)`."""
        sides = [[len(row) for row in rows] for rows in (self.source, self.target)]
        return np.array(sides, np.int64).T


@dataclass(frozen=True)
class Batch:
    """Padded ids of pairs: source `(B, S)` and its mask, decoder input and output `(B, T)`."""

    source: Tensor
    source_mask: Tensor
    target_in: Tensor
    target_out: Tensor

    @property
    def target_tokens(self) -> int:
        """Number of target tokens without padding, end marks included."""
        return int((self.target_out != PAD).sum())

    def to(self, device: torch.device) -> Batch:
        return Batch(*(x.to(device) for x in vars(self).values()))


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Stack rows of ids into `(B, longest)` int64, padded at the end."""
    out = torch.full((len(rows), max(map(len, rows))), PAD, dtype=torch.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return out


def source_batch(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return sources, each with an end mark, padded, and their mask (False: padding)."""
    source = pad([[*row, EOS] for row in sources])
    return source, source != PAD


def make_batch(split: EncodedSplit | MappedSplit, rows: Sequence[int]) -> Batch:
    """Gather these rows of the split into one batch."""
    source, mask = source_batch([split.source[i] for i in rows])
    targets = [split.target[i] for i in rows]
    return Batch(source, mask, pad([[BOS, *t] for t in targets]), pad([[*t, EOS] for t in targets]))


class Plan(Sequence[list[int]]):
    """One epoch's batches in their order, as lists of rows; two arrays are in memory.

    Batch i has the rows `order[starts[i]:ends[i]]`.
    """

    def __init__(self, order: Rows, starts: Rows, ends: Rows) -> None:
        self._order, self._starts, self._ends = order, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> list[int]: ...
    @overload
    def __getitem__(self, place: slice) -> list[list[int]]: ...
    def __getitem__(self, place: int | slice) -> list[int] | list[list[int]]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        rows: list[int] = self._order[self._starts[place] : self._ends[place]].tolist()
        return rows


def plan_epoch(
    split: EncodedSplit | MappedSplit, *, tokens: int, sentences: int | None, seed: int, epoch: int
) -> Plan:
    """Return one epoch's batches of rows, in a random order set by seed and epoch alone.

    Rows are shuffled, then sorted by length: a batch has little padding and random members. A batch
    has at most `tokens` tokens with padding on its longer side (a longer sentence is a batch by
    itself) or, if `sentences` is given, that many sentences of any length.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(split), generator=generator).numpy()
    if sentences is not None:
        starts = np.arange(0, len(order), sentences)
        return Plan(order, starts, np.minimum(starts + sentences, len(order)))
    sizes = split.sizes()
    lengths = sizes.max(1) + 1
    # Stable, as list.sort: rows of equal lengths stay in random order.
    order = order[np.lexsort((sizes[order, 1], lengths[order]))]
    return gather_batches(order, lengths, tokens, generator)


def gather_batches(
    order: Rows | Sequence[int],
    lengths: Rows | Sequence[int],
    tokens: int,
    generator: torch.Generator,
) -> Plan:
    """Return batches in random order of rows that are sorted by length.

    A batch has at most `tokens` tokens with padding; a longer row is a batch by itself. `lengths`
    has the length of every row.
    """
    order = np.asarray(order, np.int64)
    ordered = np.asarray(lengths, np.int64)[order]
    starts = [0]
    while (first := starts[-1]) < len(ordered):
        # As many rows as fit at the length of the first one; longer ones leave room for fewer.
        some = ordered[first : first + max(1, tokens // max(1, int(ordered[first])))]
        fits = np.arange(1, len(some) + 1) * some <= tokens
        starts.append(first + (len(some) if fits.all() else max(1, int(fits.argmin()))))
    bounds = np.array(starts, np.int64)
    shuffled = torch.randperm(len(bounds) - 1, generator=generator).numpy()
    return Plan(order, bounds[:-1][shuffled], bounds[1:][shuffled])


def in_order(split: EncodedSplit | MappedSplit, *, tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows by source length, for scoring and decoding, where order is free."""
    order = sorted(range(len(split)), key=lambda i: len(split.source[i]))
    batch: list[int] = []
    longest = 0
    for i in order:
        length = max(len(split.source[i]), len(split.target[i])) + 1
        longest = max(longest, length)  # an earlier row may have the longer target
        if batch and (len(batch) + 1) * longest > tokens:
            yield batch
            batch, longest = [], length
        batch.append(i)
    if batch:
        yield batch


def even_batches(split: EncodedSplit | MappedSplit, *, tokens: int) -> list[list[int]]:
    """Return batches like those of `in_order`, but of similar sizes.

    One more batch may be needed, so that there is an even number of them. Two cores that take one
    batch at a time then end at about the same time.
    """
    batches = list(in_order(split, tokens=tokens))
    if len(batches) < 2:
        return batches
    count = len(batches) + len(batches) % 2
    # The smallest budget that needs no more batches: the largest batch is as small as it can be.
    least = bisect_left(
        range(tokens), -count, key=lambda budget: -sum(1 for _ in in_order(split, tokens=budget))
    )
    return list(in_order(split, tokens=least))


def write_splits(path: Path, splits: dict[str, EncodedSplit]) -> None:
    """Write encoded splits; cells then read ids and need no text."""
    tensors = {}
    for name, split in splits.items():
        for side, rows in (("source", split.source), ("target", split.target)):
            tensors[f"{name}.{side}.lengths"] = torch.tensor([len(r) for r in rows])
            tensors[f"{name}.{side}.ids"] = torch.tensor([i for r in rows for i in r])
    write_tensors(path, tensors, {"splits": list(splits)})


def read_splits(path: Path) -> dict[str, EncodedSplit]:
    """Return the splits of a file that `write_splits` wrote."""
    tensors, facts = read_tensors(path)

    def rows(name: str) -> list[list[int]]:
        parts = tensors[f"{name}.ids"].split(tensors[f"{name}.lengths"].tolist())
        return [part.tolist() for part in parts]

    return {
        name: EncodedSplit(rows(f"{name}.source"), rows(f"{name}.target"))
        for name in facts["splits"]
    }
