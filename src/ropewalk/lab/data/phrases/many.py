"""Any number of generated training pairs, drawn by several processes and yielded in order.

The first pairs are those of `generate`. After these come blocks, each with its own seed, so that
the pairs depend neither on the number of processes nor on where an earlier session ended. A
sentence that occurred before, in any split, is left out: 64-bit hashes of all sentences, 8 bytes
each, are in memory.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ropewalk.lab.data.phrases import SIZES, Pair, generate, worker
from ropewalk.lab.data.store import mapped, path_of
from ropewalk.lab.data.stream import BLOCK_PAIRS, Block, PairStream, Progress, silent
from ropewalk.machine import cores

Hashes = NDArray[np.uint64]

VERSION = 1  # of the blocks; raised whenever the same number would give other pairs


class PhraseStream(PairStream):
    """`examples` generated training pairs; `swap` makes English the source."""

    def __init__(self, examples: int, *, swap: bool = False, block: int = BLOCK_PAIRS) -> None:
        self._examples, self._swap, self._block = examples, swap, block
        self._splits = generate()

    @property
    def held_out(self) -> dict[str, tuple[Pair, ...]]:
        """The splits that are not trained on."""
        return {
            name: tuple(map(self._turned, pairs))
            for name, pairs in self._splits.items()
            if name != "train"
        }

    def scan(self, progress: Progress = silent) -> None:
        """Do nothing: the first pairs were generated with the splits."""

    @property
    def digest(self) -> str:
        facts = [VERSION, self._examples, self._swap, self._block, self._splits]
        return hashlib.sha256(json.dumps(facts, ensure_ascii=False).encode()).hexdigest()

    @property
    def pairs(self) -> int:
        return self._examples

    @property
    def sample(self) -> list[Pair]:
        """The first pairs, so that every number of pairs gives the same vocabulary."""
        return [self._turned(pair) for pair in self._splits["train"][: self._examples]]

    def blocks(self, folder: Path, done: int) -> Iterator[Block]:
        """Yield the blocks that are not parts in `folder` yet."""
        seen = _hashes(pair for pairs in self._splits.values() for pair in pairs)
        count = min(SIZES["train"], self._examples)
        if done == 0:
            yield Block(0, self.sample, {"seen": np.empty(0, np.uint64)})
        for number in range(1, done):
            before = mapped(path_of(folder, number, "seen.npy"), 1)
            count += len(before) // 2
            seen = np.concatenate([seen, before])
        seen.sort()
        if count >= self._examples:
            return
        number = max(done, 1)
        for pairs, hashes in drawn_blocks(number - 1, self._block):
            sides = hashes.reshape(-1, 2)
            new = ~_is_in(seen, sides).any(1)
            new &= new.cumsum() <= self._examples - count
            kept = [self._turned(pairs[i]) for i in new.nonzero()[0]]
            count += len(kept)
            added = sides[new].reshape(-1)
            yield Block(number, kept, {"seen": added})
            if count >= self._examples:
                return
            # Positions of sorted hashes in sorted hashes: one pass instead of another sort.
            added = np.sort(added)
            seen = np.insert(seen, np.searchsorted(seen, added), added)
            number += 1

    def _turned(self, pair: Pair) -> Pair:
        return (pair[1], pair[0]) if self._swap else pair


def _hashes(pairs: Iterator[Pair]) -> Hashes:
    content = b"".join(worker.hash_of(sentence) for pair in pairs for sentence in pair)
    return np.frombuffer(content, "<u8").astype(np.uint64)


def _is_in(seen: Hashes, hashes: Hashes) -> NDArray[np.bool_]:
    """Return which hashes are in `seen`, which is sorted and not empty."""
    places = np.searchsorted(seen, hashes).clip(max=len(seen) - 1)
    found: NDArray[np.bool_] = seen[places] == hashes
    return found


def drawn_blocks(first: int, size: int) -> Iterator[tuple[list[Pair], Hashes]]:
    """Yield blocks `first`, `first` + 1, … of `size` pairs, with hashes, from a process per core.

    A process waits once it is a block ahead, so memory is bounded. Raises OSError if one ends.
    """
    jobs = cores()
    command = [sys.executable, "-m", "ropewalk.lab.data.phrases.worker"]
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for place in range(jobs):
            arguments = [str(n) for n in (first + place, jobs, size)]
            workers.append(subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE))
        while True:
            for process in workers:
                assert process.stdout is not None
                yield _read_block(process.stdout)
    finally:
        for process in workers:
            process.kill()
        for process in workers:
            process.communicate()


def _read_block(output: IO[bytes]) -> tuple[list[Pair], Hashes]:
    sizes = worker.SIZES.unpack(_read(output, worker.SIZES.size))
    sources, targets, hashes = (_read(output, size) for size in sizes)
    sides = (part.decode().split("\n") for part in (sources, targets))
    return list(zip(*sides, strict=True)), np.frombuffer(hashes, "<u8").astype(np.uint64)


def _read(output: IO[bytes], size: int) -> bytes:
    content = output.read(size)
    if len(content) < size:
        raise OSError(
            "a process that generates sentences has ended, perhaps for lack of memory; run the "
            "same command again to go on"
        )
    return content
