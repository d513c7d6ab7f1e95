"""Tokenizes the training pairs of a large corpus once, block by block, into a store.

The library's own threads encode a block while the next one is read or generated. A session that
was killed goes on after the last complete part, with the same vocabulary. Memory is bounded by
three blocks, their ids and the sample of the vocabulary.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ropewalk.files import Facts, digest_of, read_checked_json, write_checked_json
from ropewalk.lab.data.store import (
    INDEX,
    Ids,
    complete_parts,
    ids_dtype,
    read_index,
    write_index,
    write_part,
)
from ropewalk.lab.data.stream import Block, PairStream, Progress, silent
from ropewalk.lab.data.textfiles import CorpusError, Pair
from ropewalk.lab.tokens import Tokens

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
                f"{folder / f'{number:05d}.json'} is a part with other data or another max_tokens; "
                f"delete {folder}, or choose another folder with --out"
            )
    if (folder / INDEX).exists():
        index = read_index(folder)
        if index.get("key") == key and index["parts"] == len(parts):
            return dict(index["facts"])
    found = _Overlap(held_out)
    try:
        parts += _write_parts(stream, tokens, folder, parts, max_tokens, key, found, progress)
    except CorpusError:  # the text that these parts are of does not exist any more
        shutil.rmtree(folder)
        raise
    if not any(part["pairs"] for part in parts):
        raise ValueError(f"max_tokens must leave training pairs, got {max_tokens}: all are longer")
    longest = [max(part["longest"][side] for part in parts) for side in (0, 1)]
    facts = {
        "left_out": sum(part["left_out"] for part in parts),
        "longest_in_training": dict(zip(("source", "target"), longest, strict=True)),
        "seen_in_training": found.counts(),
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
    found: _Overlap,
    progress: Progress,
) -> list[Facts]:
    """Write the parts after those of `before`, and return their facts."""
    written: list[Facts] = []
    count = sum(part["pairs"] + part["left_out"] for part in before)
    waiting: tuple[Block, Future[tuple[dict[str, Ids], Facts]]] | None = None

    def write() -> None:
        nonlocal count
        if waiting is not None:
            block, future = waiting
            arrays, facts = future.result()
            facts["key"] = key
            write_part(folder, block.number, {**arrays, **block.arrays}, facts)
            written.append({**facts, "pairs": len(arrays["lengths"])})
            count += len(block.pairs)
        progress("tokenizing", count, stream.pairs)

    write()
    with ThreadPoolExecutor(1) as pool:
        for block in stream.blocks(folder, len(before)):
            found.add(block.pairs)
            if block.number >= len(before):
                write()
                waiting = block, pool.submit(_encode, tokens, block.pairs, max_tokens)
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


class _Overlap:
    """Which sentences of the held-out splits occur in training, block by block."""

    def __init__(self, held_out: Mapping[str, Sequence[Pair]]) -> None:
        self._held_out = held_out
        pairs = [pair for split in held_out.values() for pair in split]
        self._wanted: dict[str, set[object]] = {
            "source": {source for source, _ in pairs},
            "target": {target for _, target in pairs},
            "pairs": set(pairs),
        }
        self._found: dict[str, set[object]] = {kind: set() for kind in self._wanted}

    def add(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            for kind, item in (("source", pair[0]), ("target", pair[1]), ("pairs", pair)):
                if item in self._wanted[kind]:
                    self._found[kind].add(item)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts as `corpus.overlap` does."""
        found = self._found
        return {
            name: {
                "source": sum(source in found["source"] for source, _ in pairs),
                "target": sum(target in found["target"] for _, target in pairs),
                "pairs": sum(pair in found["pairs"] for pair in pairs),
            }
            for name, pairs in self._held_out.items()
        }
