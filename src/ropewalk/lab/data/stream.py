"""Large training corpora, which are read block by block and never completely in memory.

A stream is read twice: `scan` checks every line, computes the digest and takes the sample for the
vocabulary; `blocks` then yields the pairs to tokenize. Memory is bounded by one block and by the
sample: SAMPLE_CHARACTERS of text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ropewalk.lab.data.textfiles import CorpusError, Pair, hash_of

#: Called with the name of a step, what is done of it, and the total, or None if it is not known.
Progress = Callable[[str, int, int | None], None]

LARGE_PAIRS = 200_000  # of a training split of the hub; more are streamed
LARGE_BYTES = 2**25  # of the files of a training split; gzipped, a quarter of it

BLOCK_PAIRS = 50_000
BLOCK_CHARACTERS = 2**24  # of a block; web corpora have lines of up to 100,000 bytes
SAMPLE_CHARACTERS = 2**25  # of text that the vocabulary is trained on


def silent(name: str, done: int, total: int | None) -> None:
    """Show no progress."""


class PairStream:
    """The training pairs of a large corpus, in a fixed order and in fixed blocks.

    `rows` opens the corpus, each time that it is called, and yields its pairs. After `scan`,
    `digest` is the SHA-256 of the text, `pairs` is the number of pairs, and `sample` has those that
    the vocabulary is trained on, at most SAMPLE_CHARACTERS of text.
    """

    def __init__(self, name: str, rows: Callable[[], Iterator[Pair]]) -> None:
        self.name, self._rows = name, rows
        self.digest, self.pairs, self.sample = "", 0, list[Pair]()

    def scan(self, progress: Progress = silent) -> None:
        """Read every pair once. Raises CorpusError, naming the line, if one is wrong."""
        digest, sample, count = hashlib.sha256(), _Sample(), 0
        for count, pair in enumerate(self._rows(), start=1):
            digest.update("\n".join((*pair, "")).encode())
            sample.add(pair)
            if count % BLOCK_PAIRS == 0:
                progress("checking the corpus", count, None)
        progress("checking the corpus", count, count)
        self.digest, self.pairs, self.sample = digest.hexdigest(), count, sample.pairs

    def blocks(self) -> Iterator[list[Pair]]:
        """Yield the blocks in order; all lines are read, so that a change is noticed.

        Raises CorpusError after the last block if the text has changed since `scan`.
        """
        digest, size = hashlib.sha256(), 0
        block: list[Pair] = []
        for pair in self._rows():
            digest.update("\n".join((*pair, "")).encode())
            block.append(pair)
            size += len(pair[0]) + len(pair[1])
            if len(block) == BLOCK_PAIRS or size >= BLOCK_CHARACTERS:
                yield block
                block, size = [], 0
        if block:
            yield block
        if digest.hexdigest() != self.digest:
            raise CorpusError(f"{self.name} changed while it was read; run the command again")


class _Sample:
    """Every k-th pair, with the smallest power of two for k that keeps the text in bounds."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._step, self._seen, self._size = 1, 0, 0

    def add(self, pair: Pair) -> None:
        if self._seen % self._step == 0:
            self.pairs.append(pair)
            self._size += len(pair[0]) + len(pair[1])
        self._seen += 1
        while self._size > SAMPLE_CHARACTERS and len(self.pairs) > 1:
            self.pairs = self.pairs[::2]
            self._size = sum(len(source) + len(target) for source, target in self.pairs)
            self._step *= 2


def hold_out(rows: Iterable[Pair], share: float, most: int) -> dict[str, dict[str, str]]:
    """Return the pairs held out for "validation" and "test", by their source sentences.

    They are the source sentences with the largest and the smallest hashes, each with the first of
    its translations: `most` of each, or `share` of the pairs if these are fewer. In memory are
    only a few times `most` pairs.
    """
    last = 2**256 - 1
    kept: list[dict[int, Pair]] = [{}, {}]  # by distance from the last hash, and from the first
    bounds = [last, last]
    count = 0
    for pair in rows:
        count += 1
        place = int.from_bytes(hash_of(pair[0]))
        for end, distance in enumerate((last - place, place)):
            if distance <= bounds[end]:
                kept[end].setdefault(distance, pair)
                if len(kept[end]) > 4 * most:
                    kept[end] = {near: kept[end][near] for near in sorted(kept[end])[:most]}
                    bounds[end] = max(kept[end])
    size = min(most, max(1, int(count * share)))
    nearest = (dict(pairs[near] for near in sorted(pairs)[:size]) for pairs in kept)
    return dict(zip(("validation", "test"), nearest, strict=True))


def is_large(paths: Mapping[str, Path]) -> bool:
    """Return whether the files of a split, by ending, are too large for memory."""
    files = filter(Path.is_file, paths.values())
    sizes = (path.stat().st_size * (4 if path.suffix == ".gz" else 1) for path in files)
    return sum(sizes) >= LARGE_BYTES
