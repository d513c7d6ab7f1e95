"""Token ids of a large corpus on disk, read through memory maps.

The form is numpy's own `.npy` file. It exists, any tool reads it, and `numpy.load(mmap_mode="r")`
maps it without a copy, so that all cells of a run share one copy in the page cache. The other forms
were refused for these reasons: safetensors copies a tensor when it reads it through numpy, Arrow
would be a dependency of 40 MB for two arrays of integers, and Megatron's `.bin` and `.idx` have
no checksum and no written specification.

A corpus is a folder of parts. Part 7 is three files: `00007.ids.npy` has the ids of its pairs one
after another, source then target, as uint16 or uint32; `00007.lengths.npy` has their lengths
`(pairs, 2)`; `00007.json` has the SHA-256 of both and is written last. A generated corpus adds
`00007.seen.npy`, which keeps later parts from repeating a sentence. A part is therefore complete
or absent. `store.json` is written after the last part. A store without it is not read.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ropewalk.files import (
    Facts,
    read_checked_json,
    remove_parts,
    write_bytes,
    write_checked_json,
)

Ids = NDArray[np.unsignedinteger]

INDEX = "store.json"


def path_of(folder: Path, number: int, ending: str) -> Path:
    """Return the path of one file of a part."""
    return folder / f"{number:05d}.{ending}"


def ids_dtype(vocabulary: int) -> type[np.unsignedinteger]:
    """Return the smallest type that has every id of a vocabulary."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def write_part(folder: Path, number: int, arrays: Mapping[str, Ids], facts: Facts) -> None:
    """Write a part, atomically: "ids", "lengths" `(pairs, 2)` and further arrays by name.

    `facts` goes to its JSON. Raises OSError if the disk is full. The part is then absent.
    """
    digests = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        content = file.getvalue()
        digests[name] = hashlib.sha256(content).hexdigest()
        write_bytes(path_of(folder, number, f"{name}.npy"), content)
    held = {**facts, "pairs": len(arrays["lengths"]), "sha256": digests}
    write_checked_json(path_of(folder, number, "json"), held)


def complete_parts(folder: Path) -> list[Facts]:
    """Return the facts of the parts 0, 1, … that are complete, up to the first absent one.

    Unfinished files of dead writers are removed. Raises ValueError, naming the file, if a part
    differs from what was written.
    """
    remove_parts(folder)
    found: list[Facts] = []
    while (path := path_of(folder, len(found), "json")).exists():
        facts = read_checked_json(path, "pairs", "sha256")
        for name, digest in facts["sha256"].items():
            _check_digest(path_of(folder, len(found), f"{name}.npy"), digest)
        found.append(facts)
    return found


def _check_digest(path: Path, expected: str) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while content := file.read(2**20):
                digest.update(content)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {_way_out(path)}") from None
    if digest.hexdigest() != expected:
        raise ValueError(
            f"{path} is damaged: it does not match its checksum; {_way_out(path)}"
        ) from None


def _way_out(path: Path) -> str:
    number = path.name.partition(".")[0]
    return f"delete {path.with_name(number)}.json, and the same command writes part {number} again"


def write_index(folder: Path, parts: int, facts: Facts) -> None:
    """Mark a store of this many parts as complete."""
    write_checked_json(folder / INDEX, {**facts, "parts": parts})


def read_index(folder: Path) -> Facts:
    """Return the facts of a complete store. Raises ValueError if it is not complete."""
    if not (folder / INDEX).exists():
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

    def __iter__(self) -> Iterator[list[int]]:
        return (self[row] for row in range(len(self)))


class MappedSplit:
    """The pairs of a store, with the interface of `EncodedSplit`.

    In memory are only the lengths and the place of each pair: 16 bytes a pair.
    """

    def __init__(self, folder: Path) -> None:
        count = read_index(folder)["parts"]
        self._parts = [
            # Slices of a plain view of the map take a tenth of the time of slices of np.memmap.
            mapped(path_of(folder, i, "ids.npy"), 1).view(np.ndarray)
            for i in range(count)
        ]
        lengths = [mapped(path_of(folder, i, "lengths.npy"), 2) for i in range(count)]
        self._first = [0, *accumulate(map(len, lengths))]  # row of each part
        whole = np.empty((self._first[-1], 2), np.uint32)
        starts = np.empty(len(whole), np.int64)
        for number, part in enumerate(lengths):
            rows = slice(self._first[number], self._first[number + 1])
            whole[rows] = part
            ends = part.sum(1, dtype=np.int64).cumsum()
            starts[rows] = ends - part.sum(1, dtype=np.int64)
            if len(ends) and ends[-1] != len(self._parts[number]):
                path = path_of(folder, number, "ids.npy")
                raise ValueError(f"{path} does not fit its lengths; {_way_out(path)}")
        self.lengths, self._starts = whole, starts
        self.source, self.target = Side(self, 0), Side(self, 1)

    def __len__(self) -> int:
        return len(self.lengths)

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of tokens of both sides, `(pairs, 2)`."""
        return self.lengths.astype(np.int64)

    def ids(self, row: int) -> tuple[Ids, Ids]:
        """Return the ids of one pair, without a copy."""
        if not 0 <= row < len(self):
            raise IndexError(f"row must be from 0 to {len(self) - 1}, got {row}")
        ids = self._parts[bisect_right(self._first, row) - 1]
        start = int(self._starts[row])
        middle = start + int(self.lengths[row, 0])
        return ids[start:middle], ids[middle : middle + int(self.lengths[row, 1])]


def mapped(path: Path, axes: int) -> Ids:
    """Map an array. Raises ValueError, naming the file, if it is missing or not such an array."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim != axes or array.dtype.kind != "u":
            raise ValueError(f"it has {array.ndim} axes of {array.dtype}")
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {_way_out(path)}") from None
    except (ValueError, EOFError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} is not a readable array: {why}; {_way_out(path)}") from None
    return array  # type: ignore[no-any-return]


__all__ = [
    "MappedSplit",
    "complete_parts",
    "ids_dtype",
    "mapped",
    "path_of",
    "read_index",
    "write_index",
    "write_part",
]
