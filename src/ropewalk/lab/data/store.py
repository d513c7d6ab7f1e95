"""Token ids of a large corpus on disk: written once, block by block, and read through memory maps.

The library's own threads encode a block while the next one is read. A session that was killed goes
on after the last complete part, with the same vocabulary. Memory is bounded by three blocks, their
ids and the sample of the vocabulary.

A corpus is a folder of parts. `00007.safetensors` is part 7: the tensor "ids" has the ids of its
pairs one after another, source then target, as uint16 or uint32; "lengths" has their lengths
`(pairs, 2)`. Like every file of tensors, it has a checksum, and is complete or absent. It is mapped
without a copy, so that all cells of a run share one copy in the page cache. `store.json` is written
after the last part. A store without it is not read.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ropewalk.files import Facts, digest_of, read_checked_json, remove_parts, write_checked_json
from ropewalk.lab.data.corpus import Overlap
from ropewalk.lab.data.stream import PairStream, Progress, silent
from ropewalk.lab.data.textfiles import CorpusError, Pair
from ropewalk.lab.tensors import read_tensors, write_tensors
from ropewalk.lab.tokens import Tokens

Ids = NDArray[np.unsignedinteger]

INDEX = "store.json"


def part_path(folder: Path, number: int) -> Path:
    """Return the path of a part."""
    return folder / f"{number:05d}.safetensors"


def ids_dtype(vocabulary: int) -> type[np.unsignedinteger]:
    """Return the smallest type that has every id of a vocabulary."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def write_part(folder: Path, number: int, arrays: Mapping[str, Ids], facts: Facts) -> None:
    """Write a part, atomically: the arrays "ids" and "lengths" `(pairs, 2)`, and facts about them.

    Raises OSError if the disk is full. The part is then absent.
    """
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    write_tensors(part_path(folder, number), tensors, facts)


def complete_parts(folder: Path) -> list[Facts]:
    """Return the facts of the parts 0, 1, … that are complete, up to the first absent one.

    "pairs" is their number. Unfinished files of dead writers are removed. Raises ValueError, naming
    the file, if a part differs from what was written.
    """
    remove_parts(folder)
    complete: list[Facts] = []
    while os.path.lexists(path := part_path(folder, len(complete))):
        tensors, facts = read_tensors(path)
        complete.append({**facts, "pairs": len(tensors["lengths"])})
    return complete


def write_index(folder: Path, parts: int, facts: Facts) -> None:
    """Mark a store of this many parts as complete."""
    write_checked_json(folder / INDEX, {**facts, "parts": parts})


def read_index(folder: Path) -> Facts:
    """Return the facts of a complete store. Raises ValueError if it is not complete."""
    if not os.path.exists(folder / INDEX):
        raise ValueError(
            f"{folder} is not complete: it has no {INDEX}; run the same ropewalk compare or train "
            "on the same folder to go on"
        )
    return read_checked_json(folder / INDEX, "parts")


class Side(Sequence[list[int]]):
    """The sentences of one side of a store, as lists of ids that are read when requested."""

    def __init__(self, split: MappedSplit, side: int) -> None:
        self._split, self._side = split, side

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, row: int) -> list[int]:  # type: ignore[override]  # no slices
        return self._split.ids(row)[self._side].tolist()  # type: ignore[no-any-return]


class MappedSplit:
    """The pairs of a store, with the interface of `EncodedSplit`.

    In memory are only the lengths and the place of each pair: 16 bytes a pair.
    """

    def __init__(self, folder: Path) -> None:
        paths = [part_path(folder, i) for i in range(read_index(folder)["parts"])]
        # `prepare` has compared the checksums.
        parts = [read_tensors(path, unchecked=True)[0] for path in paths]
        self._parts: list[Ids] = [part["ids"].numpy() for part in parts]
        self.lengths: Ids = np.concatenate([part["lengths"].numpy() for part in parts])
        self._rows = [0, *accumulate(len(part["lengths"]) for part in parts)]
        self._places = [0, *accumulate(map(len, self._parts))]
        self._ends = self.lengths.sum(1, dtype=np.int64).cumsum()
        self.source, self.target = Side(self, 0), Side(self, 1)

    def __len__(self) -> int:
        return len(self.lengths)

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of tokens of both sides, `(pairs, 2)`."""
        return self.lengths.astype(np.int64)

    def ids(self, row: int) -> tuple[Ids, Ids]:
        """Return the ids of one pair, from 0 on, without a copy."""
        source, target = map(int, self.lengths[row])
        part = bisect_right(self._rows, row) - 1
        middle = int(self._ends[row]) - target - self._places[part]
        ids = self._parts[part]
        return ids[middle - source : middle], ids[middle : middle + target]


FOLDER = "pairs"  # of the store, in the run folder
BEGUN = "vocabulary.json"  # in the store: which data and vocabulary its parts are of
ENCODED_AT_ONCE = 2_000  # sentences: the library takes some 5 KB for each until its ids are copied


def vocabulary_of(
    stream: PairStream, run: Path, size: int, *, lowercase: bool, progress: Progress = silent
) -> tuple[Tokens, str]:
    """Return the vocabulary and its digest: that of an earlier session, or a new one in the run.

    Raises ValueError if the run folder has parts of other data or of another vocabulary.
    """
    folder, path = run / FOLDER, run / "tokenizer.json"
    wanted = {"data": stream.digest, "vocabulary": size, "lowercase": lowercase}
    begun = folder / BEGUN
    if begun.exists():
        held = read_checked_json(begun, "tokenizer")
        digest = str(held.pop("tokenizer"))
        if held != wanted:
            changed = "the corpus has changed" if held["data"] != wanted["data"] else "other fields"
            raise ValueError(
                f"{folder} has pairs of an earlier session with other data or another vocabulary "
                f"({changed}); delete this folder, or choose another one with --out"
            )
        if path.exists():
            return Tokens.load(path, digest), digest
    sample = stream.sample
    progress("training the vocabulary", 0, None)
    tokens = Tokens.train(
        (sentence for pair in sample for sentence in pair), size, lowercase=lowercase
    )
    digest = tokens.save(path)
    write_checked_json(begun, {**wanted, "tokenizer": digest})
    progress("training the vocabulary", 1, 1)
    return tokens, digest


def tokenize(
    stream: PairStream,
    tokens: Tokens,
    digest: str,
    run: Path,
    *,
    max_tokens: int,
    held_out: Mapping[str, Sequence[Pair]],
    progress: Progress = silent,
) -> Facts:
    """Tokenize what is not in the store yet, and return facts about all of it.

    `digest` is that of the vocabulary. Pairs with more than `max_tokens` tokens on a side are left
    out. The facts have "left_out", "longest_in_training" and, of each held-out split, how many of
    its sentences occur in training.

    Raises:
        ValueError: if a part is damaged, the corpus changed meanwhile, or no pair is left.
        OSError: if the disk is full; complete parts stay.
    """
    folder = run / FOLDER
    key = digest_of({"data": stream.digest, "vocabulary": digest, "max_tokens": max_tokens})
    parts = complete_parts(folder)
    for number, part in enumerate(parts):
        if part.get("key") != key:
            raise ValueError(
                f"{part_path(folder, number)} is a part with other data or another max_tokens; "
                f"delete {folder}, or choose another folder with --out"
            )
    if (folder / INDEX).exists():
        index = read_index(folder)
        if index.get("key") == key and index["parts"] == len(parts):
            return dict(index["facts"])
    overlap = Overlap(held_out)
    try:
        parts += _write_parts(stream, tokens, folder, parts, max_tokens, key, overlap, progress)
    except CorpusError:  # the text that these parts are of does not exist any more
        shutil.rmtree(folder)
        raise
    if not any(part["pairs"] for part in parts):
        raise ValueError(f"max_tokens must leave training pairs, got {max_tokens}: all are longer")
    longest = [max(part["longest"][side] for part in parts) for side in (0, 1)]
    facts = {
        "left_out": sum(part["left_out"] for part in parts),
        "longest_in_training": dict(zip(("source", "target"), longest, strict=True)),
        "seen_in_training": overlap.counts(),
    }
    write_index(folder, len(parts), {"key": key, "facts": facts})
    return facts


def _write_parts(
    stream: PairStream,
    tokens: Tokens,
    folder: Path,
    before: Sequence[Facts],
    max_tokens: int,
    key: str,
    overlap: Overlap,
    progress: Progress,
) -> list[Facts]:
    """Write the parts after those of `before`, and return their facts."""
    written: list[Facts] = []
    count = sum(part["pairs"] + part["left_out"] for part in before)
    waiting: tuple[int, int, Future[tuple[dict[str, Ids], Facts]]] | None = None

    def write() -> None:
        nonlocal count
        if waiting is not None:
            number, pairs, future = waiting
            arrays, facts = future.result()
            facts["key"] = key
            write_part(folder, number, arrays, facts)
            written.append({**facts, "pairs": len(arrays["lengths"])})
            count += pairs
        progress("tokenizing", count, stream.pairs)

    write()
    with ThreadPoolExecutor(1) as pool:
        for number, block in enumerate(stream.blocks()):
            overlap.add(block)
            if number >= len(before):
                write()
                waiting = number, len(block), pool.submit(_encode, tokens, block, max_tokens)
        write()
    return written


def _encode(tokens: Tokens, pairs: list[Pair], max_tokens: int) -> tuple[dict[str, Ids], Facts]:
    """Return the arrays of a part without its long pairs, and facts about it."""
    ids, lengths, left_out = [np.empty(0, np.int64)], [], 0
    for start in range(0, len(pairs), ENCODED_AT_ONCE // 2):
        some = pairs[start : start + ENCODED_AT_ONCE // 2]
        rows = tokens.encode([sentence for pair in some for sentence in pair])
        flat: list[int] = []
        for source, target in zip(rows[::2], rows[1::2], strict=True):
            if max(len(source), len(target)) > max_tokens:
                left_out += 1
                continue
            flat += source
            flat += target
            lengths.append((len(source), len(target)))
        ids.append(np.array(flat, np.int64))
    sizes = np.array(lengths, np.uint32).reshape(-1, 2)
    longest = [int(n) for n in sizes.max(0, initial=0)]
    arrays = {"ids": np.concatenate(ids).astype(ids_dtype(tokens.size)), "lengths": sizes}
    return arrays, {"left_out": left_out, "longest": longest}
