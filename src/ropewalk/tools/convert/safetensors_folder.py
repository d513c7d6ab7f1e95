"""The files of a model's folder: which are weights, which are copied, which would contradict.

Each safetensors file has its header checked, and is copied with some rows in another order.
The format: 8 bytes with the length of a JSON object, that object, then the data. The object has the
dtype, shape and offsets of each tensor. Source: huggingface/safetensors, safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from ropewalk.checks import shown
from ropewalk.files import json_problem, open_regular, parse_json, read_text, shown_path
from ropewalk.tools.convert.row_permutation import permuted

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

    file: Path
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
    except _DoubledNameError as error:
        raise _damaged(path, f"its header has {shown(error.args[0])} twice") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"header: {json_problem(error)}") from None
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
    return Tensor(path, name, dtype, tuple(shape), begin, end)


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
    """One JSON object has a name twice, its argument."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise _DoubledNameError(name)
        values[name] = value
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


MOST_FILES = 10_000
MOST_INDEX_BYTES = 2**27  # ten times that of the largest published models
INDEX = ".safetensors.index.json"
# Weights that would have the old pairing, next to a config that states the new one.
OTHER_WEIGHTS = tuple(
    """
    .bin .ckpt .engine .gguf .ggml .h5 .keras .mlmodel .msgpack .nemo .npy .npz .onnx .pickle .pkl
    .pt .pt2 .pte .pth .tflite
    """.split()  # noqa: SIM905
)
NO_WEIGHTS = ("training_args.bin", "scheduler.pt")
ADAPTERS = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class ModelFolder:
    """The files of a model: weights with checked headers, files to copy, and folders left out."""

    path: Path
    weights: tuple[SafetensorsFile, ...]
    others: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        sizes = [os.stat(self.path / name).st_size for name in self.others]
        return sum(sizes) + sum(file.size for file in self.weights)


def read_folder(path: Path) -> ModelFolder:
    """Return a model's files, checked. Raises ValueError that names the first wrong one.

    Symlinks to files are read through, as in the cache of huggingface_hub.
    """
    others: list[str] = []
    weights: list[str] = []
    left_out: list[str] = []
    for name in _names(path):
        file = path / name
        if os.path.isdir(file) and not name.endswith(".safetensors") and name != "config.json":
            left_out.append(f"{name}/")
            continue
        open_regular(file).close()  # raises if it is a folder or cannot be read
        _check_name(file)
        (weights if name.endswith(".safetensors") else others).append(name)
    if not weights:
        raise ValueError(f"IN must have weights in *.safetensors, got none in {shown_path(path)}")
    files = tuple(read_safetensors(path / name) for name in weights)
    indexes = [name for name in others if INDEX.removesuffix("json") in name]
    _check_index(path, indexes, files)
    return ModelFolder(path, files, tuple(others), tuple(left_out))


def _names(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_FILES + 1))
    except FileNotFoundError:
        name = shown_path(path)
        raise ValueError(f"IN must be a model's folder, but {name} is missing") from None
    except NotADirectoryError:
        raise ValueError(f"IN must be a model's folder, got the file {shown_path(path)}") from None
    except PermissionError:
        raise ValueError(f"{shown_path(path)}: no permission to read it") from None
    if len(names) > MOST_FILES:
        raise ValueError(f"IN must have at most {MOST_FILES:,} files, got more")
    return names


def _check_name(file: Path) -> None:
    """Raise if a file has weights that are not converted."""
    name, is_read = file.name.lower(), file.name.endswith(".safetensors")
    has_weights = not (name in NO_WEIGHTS or name.startswith("rng_state"))
    reasons = {
        "an adapter (LoRA) is not converted, and would not fit converted weights; merge it into "
        "the model first": name in ADAPTERS or name.startswith("adapter_model."),
        # Such as MODEL.SAFETENSORS and model.safetensors.bak.
        "weights are in names that end in .safetensors, and a copy would keep the old pairing; "
        "rename it, or move it out of the folder": (
            ".safetensors" in name and not is_read and ".safetensors.index." not in file.name
        ),
        "only safetensors are converted, and these weights would keep the old pairing; move it out "
        "of the folder, or save the model as safetensors": (
            name.endswith(OTHER_WEIGHTS) and has_weights
        ),
        "weights with the names of another library are not converted, and would keep the old "
        "pairing; move it out of the folder": name.startswith("consolidated") and is_read,
    }
    for why, applies in reasons.items():
        if applies:
            raise ValueError(f"{shown_path(file)}: {why}")


def _check_index(path: Path, indexes: list[str], files: tuple[SafetensorsFile, ...]) -> None:
    """Raise unless each tensor is in one file, and the index says in which."""
    file_of: dict[str, str] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in file_of:
                raise ValueError(
                    f"tensor {shown(tensor.name, 200)} is in two files of {shown_path(path)}, "
                    f"{shown(file_of[tensor.name])} and {shown(file.path.name)}"
                )
            file_of[tensor.name] = file.path.name
    if len(indexes) > 1:
        raise ValueError(
            f"IN must have one index of its weights, got {shown(indexes[0])} and "
            f"{shown(indexes[1])}"
        )
    if not indexes:
        if len(files) > 1:
            raise ValueError(
                f"weights in several files must have an index, model{INDEX}, got "
                f"{shown(files[0].path.name)} and {shown(files[1].path.name)} without one"
            )
        return
    index = path / indexes[0]
    weight_map = read_weight_map(index)
    names = {file.path.name for file in files}
    for tensor_name, file_name in weight_map.items():
        if not isinstance(file_name, str) or file_name in (".", "..", ""):
            wrong = "which is no name of a file"
        elif {"/", "\\", "\0"} & set(file_name):
            wrong = "which is not a file of this folder itself"
        elif file_name not in names:
            wrong = "which is missing from the folder"
        elif file_of.get(tensor_name) != file_name:
            wrong = "but that file does not have it"
        else:
            continue
        where = f"{shown_path(index)} has tensor {shown(tensor_name, 200)}"
        raise ValueError(f"{where} in {shown(file_name)}, {wrong}")
    for tensor_name, file_name in file_of.items():
        if tensor_name not in weight_map:
            raise ValueError(
                f"{shown_path(index)} does not have tensor {shown(tensor_name, 200)} of "
                f"{shown(file_name)}; remove the file, or correct the index"
            )


def read_weight_map(index: Path) -> Mapping[str, Any]:
    """Return the file of each tensor, by an index. Raises ValueError if it is damaged."""
    text = read_text(index, MOST_INDEX_BYTES)
    try:
        content = parse_json(text, MOST_INDEX_BYTES)
    except ValueError as error:
        raise ValueError(f"{shown_path(index)} is damaged: {error}") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict):
        raise ValueError(f"{shown_path(index)} must have a weight_map, got {shown(content)}")
    return weight_map
