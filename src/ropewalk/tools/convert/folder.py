"""The files of a model's folder: which are weights, which are copied, which would contradict."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ropewalk.checks import shown
from ropewalk.files import parse_json, read_text, shown_path
from ropewalk.tools.convert.safetensors_file import SafetensorsFile, read_safetensors

MOST_FILES = 10_000
MOST_INDEX_BYTES = 2**27  # ten times that of the largest published models
INDEX = ".safetensors.index.json"
# Weights that would have the old pairing, next to a config that states the new one.
OTHER_WEIGHTS = (
    *(".bin", ".ckpt", ".engine", ".gguf", ".ggml", ".h5", ".keras", ".mlmodel", ".msgpack"),
    *(
        ".nemo",
        ".npy",
        ".npz",
        ".onnx",
        ".pickle",
        ".pkl",
        ".pt",
        ".pt2",
        ".pte",
        ".pth",
        ".tflite",
    ),
)
NO_WEIGHTS = ("training_args.bin", "scheduler.pt", "rng_state.pth")
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
        if _is_folder(file):
            if name.endswith(".safetensors") or name == "config.json":
                raise ValueError(f"{shown_path(file)}: a folder, not a regular file")
            left_out.append(f"{name}/")
            continue
        _check_name(file)
        (weights if name.endswith(".safetensors") else others).append(name)
    _check_weights(path, weights)
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


def _is_folder(file: Path) -> bool:
    """Return whether a name is a folder; raise if it is neither a folder nor a readable file."""
    name = shown_path(file)
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        raise ValueError(f"{name}: a symlink to a file that is missing") from None
    except OSError as error:  # a loop of symlinks, or no permission
        raise ValueError(f"{name}: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        return True
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: not a regular file; remove it, or copy the model without it")
    if not os.access(file, os.R_OK):
        raise ValueError(f"{name}: no permission to read it")
    return False


def _check_name(file: Path) -> None:
    name = file.name.lower()
    if name in ADAPTERS or name.startswith("adapter_model."):
        raise ValueError(
            f"{shown_path(file)}: an adapter (LoRA) is not converted, and would not fit converted "
            f"weights; merge it into the model first"
        )
    known = file.name.endswith(".safetensors") or ".safetensors" not in name
    if (
        not known and ".safetensors.index." not in file.name
    ):  # such as MODEL.SAFETENSORS and model.safetensors.bak
        raise ValueError(
            f"{shown_path(file)}: weights are in names that end in .safetensors, and a copy would "
            f"keep the old pairing; rename it, or move it out of the folder"
        )
    wrong = name.endswith(OTHER_WEIGHTS) and name not in NO_WEIGHTS
    if wrong and not name.startswith("rng_state"):
        raise ValueError(
            f"{shown_path(file)}: only safetensors are converted, and these weights would keep the "
            f"old pairing; move it out of the folder, or save the model as safetensors"
        )
    if name.startswith("consolidated") and name.endswith(".safetensors"):
        raise ValueError(
            f"{shown_path(file)}: weights with the names of another library are not converted, and "
            f"would keep the old pairing; move it out of the folder"
        )


def _check_weights(path: Path, weights: list[str]) -> None:
    if not weights:
        raise ValueError(f"IN must have weights in *.safetensors, got none in {shown_path(path)}")


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
        where = f"{shown_path(index)} has tensor {shown(tensor_name, 200)}"
        if not isinstance(file_name, str) or file_name in (".", "..", ""):
            raise ValueError(f"{where} in {shown(file_name)}, which is no name of a file")
        if {"/", "\\", "\0"} & set(file_name):
            raise ValueError(
                f"{where} in {shown(file_name)}, which is not a file of this folder itself"
            )
        if file_name not in names:
            raise ValueError(f"{where} in {shown(file_name)}, which is missing from the folder")
        if file_of.get(tensor_name) != file_name:
            raise ValueError(f"{where} in {shown(file_name)}, but that file does not have it")
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
