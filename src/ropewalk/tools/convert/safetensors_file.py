"""The checked header of a safetensors file, and a copy of it with some rows in another order.

The format: 8 bytes with the length of a JSON object, that object, then the data. The object has the
dtype, shape and offsets of each tensor. Source: huggingface/safetensors, safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from ropewalk.checks import shown
from ropewalk.files import json_problem, shown_path
from ropewalk.tools.convert.permute import permuted

MOST_HEADER_BYTES = 100_000_000  # the format's own limit
MOST_DIMENSIONS = 64
CHUNK = 2**22  # bytes that are copied in one step
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file: where its bytes are, counted from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.begin


@dataclass(frozen=True)
class SafetensorsFile:
    """The checked header of a file: its bytes and its tensors, in the order of their offsets."""

    path: Path
    size: int
    header: bytes
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Reordering:
    """Rows of a tensor in another order: parts of len(order) rows, from each start on."""

    tensor: Tensor
    row_bytes: int
    starts: tuple[int, ...]
    order: tuple[int, ...]


def read_safetensors(path: Path) -> SafetensorsFile:
    """Return the checked header of a file. Raises ValueError that names the file and the tensor."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = _read_header(file, size, shown_path(path))
    try:
        entries = json.loads(header[8:].decode("utf-8"), object_pairs_hook=_without_doubles)
    except UnicodeDecodeError:
        raise _damaged(path, "its header is not UTF-8") from None
    except (_DoubledNameError, ValueError, RecursionError) as error:
        doubled = isinstance(error, _DoubledNameError)
        raise _damaged(path, str(error) if doubled else f"header: {json_problem(error)}") from None
    if not isinstance(entries, dict):
        raise _damaged(path, f"its header must be a JSON object, got {shown(entries, 40)}")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged(path, f"__metadata__ must be texts by name, got {shown(metadata)}")
    tensors = [_tensor(path, name, entry, len(header), size) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    _check_offsets(path, tensors, len(header), size)
    return SafetensorsFile(path, size, header, tuple(tensors))


def copy_reordered(
    source: SafetensorsFile, target: BinaryIO, changes: Iterable[Reordering]
) -> None:
    """Write a copy of a file in which some rows have another order; all else is the same.

    At most a few megabytes, or the rotating part of one head, are in memory.
    Raises ValueError if the file has changed since its header was read.
    """
    with open_regular(source.path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != source.size or file.read(len(source.header)) != source.header:
            raise ValueError(f"{shown_path(source.path)} has changed while it was converted")
        target.write(source.header)
        at = len(source.header)
        for begin, end, order in _parts(changes):
            _copy(file, target, begin - at, source.path)
            target.write(permuted(_read(file, end - begin, source.path), order))
            at = end
        _copy(file, target, source.size - at, source.path)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; symlinks are followed. Raises ValueError that names the file."""
    name = shown_path(path)
    try:
        # Opening a pipe without O_NONBLOCK waits for a writer.
        file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    except FileNotFoundError:
        what = "a symlink to a file that is missing" if path.is_symlink() else "no such file"
        raise ValueError(f"{name}: {what}") from None
    except PermissionError:
        raise ValueError(f"{name}: no permission to read it") from None
    except OSError as error:  # also a loop of symlinks
        raise ValueError(f"{name}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{name}: not a regular file")
    return file


def _read_header(file: BinaryIO, size: int, name: str) -> bytes:
    if size < 8:
        raise ValueError(f"{name} is damaged: {size} bytes, but the length of its header takes 8")
    first = file.read(8)
    if first == b"version ":
        raise ValueError(f"{name} is a pointer of git-lfs, not the file itself; run git lfs pull")
    length = int.from_bytes(first, "little")
    if length > MOST_HEADER_BYTES:
        raise ValueError(
            f"{name} is damaged or no safetensors file: a header of {length:,} bytes, but at most "
            f"{MOST_HEADER_BYTES:,} are allowed"
        )
    if length > size - 8:
        raise ValueError(
            f"{name} is cut off: its header has {length:,} bytes, but only {size - 8:,} follow"
        )
    return first + file.read(length)


def _tensor(path: Path, name: str, entry: Any, data_begin: int, size: int) -> Tensor:
    """Return the checked entry of a header."""

    def wrong(what: str) -> ValueError:
        return _damaged(path, f"tensor {shown(name)} {what}")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise wrong("must have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise wrong(f"has a dtype that is not known, {shown(dtype)}")
    if not _are_counts(shape) or len(shape) > MOST_DIMENSIONS:
        raise wrong(f"must have a shape of integers that are not negative, got {shown(shape)}")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong(f"must have two data_offsets, begin and end, got {shown(offsets)}")
    begin, end = data_begin + offsets[0], data_begin + offsets[1]
    if end > size:
        raise ValueError(
            f"{shown_path(path)} is cut off: tensor {shown(name)} ends at byte {end:,}, but the "
            f"file has {size:,}"
        )
    bits = prod(shape) * BITS[dtype]
    if bits != 8 * (end - begin):
        raise wrong(
            f"has {end - begin} bytes, but its shape {shown(shape)} in {dtype} takes "
            f"{shown(-(-bits // 8))}"
        )
    return Tensor(name, dtype, tuple(shape), begin, end)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 2**63 for value in values
    )


def _check_offsets(path: Path, tensors: list[Tensor], data_begin: int, size: int) -> None:
    """Raise if tensors overlap, or if bytes of the data belong to none."""
    at, before = data_begin, ""
    for tensor in tensors:
        name = shown(tensor.name)
        if tensor.begin < at:
            raise _damaged(path, f"tensors {before} and {name} overlap")
        if tensor.begin > at:
            raise _damaged(path, f"{tensor.begin - at:,} bytes before tensor {name} have no tensor")
        at, before = tensor.end, name
    if at != size:
        raise _damaged(path, f"the last {size - at:,} bytes belong to no tensor")


class _DoubledNameError(ValueError):
    """A name that one JSON object has twice."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _DoubledNameError(f"its header has {shown(name)} twice")
            seen.add(name)
    return values


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"{shown_path(path)} is damaged: {what}")


def _parts(changes: Iterable[Reordering]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the begin, end and order of each part that changes, in the order of the file."""
    for change in sorted(changes, key=lambda change: change.tensor.begin):
        size = change.row_bytes * len(change.order)
        for start in sorted(change.starts):
            begin = change.tensor.begin + start * change.row_bytes
            yield begin, begin + size, change.order


def _copy(source: BinaryIO, target: BinaryIO, size: int, path: Path) -> None:
    while size > 0:
        chunk = _read(source, min(size, CHUNK), path)
        target.write(chunk)
        size -= len(chunk)


def _read(source: BinaryIO, size: int, path: Path) -> bytes:
    content = source.read(size)
    if len(content) != size:
        raise ValueError(f"{shown_path(path)} became shorter while it was converted")
    return content
