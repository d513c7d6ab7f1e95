"""Files of a training: snapshots of the model, and checkpoints that it resumes from.

The mean of some snapshots is scored at the end. A training of one process resumes from one file of
tensors. Several processes write a checkpoint together, which any number of processes can read: a
folder `checkpoint-STEP` in the format of `torch.distributed.checkpoint`. It is written under
another name and renamed when it is complete, so that a save that is killed loses nothing. torch
writes its `.metadata` as a pickle; it is read as data, and runs no code.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ropewalk.checks import shown
from ropewalk.files import (
    MOST_DATA_BYTES,
    WAY_OUT,
    Facts,
    NotReadError,
    NotWrittenError,
    open_regular,
    read_bytes,
    read_checked_json,
    way_out,
    write_checked_json,
)
from ropewalk.lab.config import SCORING_FIELDS, Config, validated
from ropewalk.lab.tensors import DamagedFile, check_finite, load_weights, read_tensors, weights_of
from ropewalk.lab.training.process_group import Group

SAVE_EVERY = 60.0  # seconds of training between resumable checkpoints

#: Fields that can change without training again. Data is compared by its digest, not by its path.
NOT_TRAINING = {*SCORING_FIELDS, "preset", "encodings", "seeds", "sweep", "splits", "data"}
NOT_TRAINING |= {"device", "parallel", "compile"}  # results differ by rounding only

METADATA = ".metadata"
#: What the metadata of tensors consists of, by module: types that only hold their arguments.
#: `BytesStorageMetadata` is not among them: torch would unpickle the parts that it stands for.
DATA = {
    "torch": {"Size", "bool", "int64", "float16", "bfloat16", "float32", "float64", "complex64"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        *("ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties"),
        *("TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    },
}


def training_fields(config: Config) -> Facts:
    """Return the fields that training depends on; a checkpoint is valid for these only."""
    fields = {name: value for name, value in config.facts().items() if name not in NOT_TRAINING}
    if config.imports:  # compared by name and digest, not by folder
        fields["imports"] = [
            {**imported, "source": Path(imported["source"]).name} for imported in fields["imports"]
        ]
    return fields


def differences(there: Facts, here: Facts) -> list[str]:
    """Return what differs between the fields of an earlier training and these."""
    return [
        f"{name} is {there.get(name)!r} there and {value!r} here"
        for name, value in here.items()
        if there.get(name) != value
    ]


def check_facts(path: Path, there: Facts, here: Facts) -> None:
    """Raise ValueError, naming what differs, for a checkpoint of another config or seed."""
    config = validated(there.get("config", {}), f"{path} has an invalid config: ")
    cell = ("encoding", "seed")
    differing = differences(
        {**training_fields(config), **{name: there.get(name) for name in cell}},
        {**here["config"], **{name: here[name] for name in cell}},
    )
    if differing:
        raise ValueError(
            f"{path} is a checkpoint of another config: {'; '.join(differing)}; use the config it "
            f"was made with, or another run folder"
        )


def snapshot_path(folder: Path, step: int) -> Path:
    """Return the path of the snapshot of this step."""
    return folder / f"snapshot-{step:07d}.safetensors"


def snapshots(folder: Path) -> list[Path]:
    """List the folder's snapshots, oldest first."""
    return sorted(folder.glob("snapshot-*.safetensors"))


def step_of(snapshot: Path) -> int:
    """Return the step at which a snapshot or a checkpoint of several processes was taken."""
    return int(snapshot.stem.rpartition("-")[2])


def step_held(path: Path) -> int:
    """Return the step of `last.safetensors` without reading tensors; -1 if it is damaged."""
    try:
        return int(read_tensors(path, unchecked=True)[1]["record"]["step"])
    except (DamagedFile, KeyError, TypeError):
        return -1


def best_snapshot(folder: Path, validation: Sequence[dict[str, float]]) -> Path:
    """Return the snapshot of the lowest validation loss."""
    return snapshot_path(folder, int(min(validation, key=lambda seen: seen["loss"])["step"]))


def chosen_snapshots(
    folder: Path, select: str, average: int, validation: Sequence[dict[str, float]]
) -> list[Path]:
    """Return the snapshots whose mean is scored: the last ones, or with select="best" the best.

    Raises ValueError if one of them is missing: the mean of the others is another model.
    """
    chosen = [snapshot_path(folder, int(seen["step"])) for seen in validation[-average:]]
    if select == "best":
        chosen = [best_snapshot(folder, validation)]
    gone = [path.name for path in chosen if not path.exists()]
    if gone:
        asked = "select=best" if select == "best" else f"average={average}"
        raise ValueError(
            f"{folder} lacks {', '.join(gone)}, which {asked} needs; restore it, or delete the "
            f"folder and run the same command to train the cell again"
        )
    return chosen


def mean_of(chosen: Sequence[Path]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the mean of these snapshots' parameters, and the facts of the last."""
    read = [read_tensors(path) for path in chosen]
    for path, (tensors, _) in zip(chosen, read, strict=True):
        check_finite(path, tensors)
    mean = {
        name: torch.stack([tensors[name].double() for tensors, _ in read]).mean(0).float()
        for name in read[0][0]
    }
    return mean, read[-1][1]


def training_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return all tensors that a training resumes from, as `model.NAME` and `optimizer.NAME.KEY`."""
    tensors = {f"model.{k}": v for k, v in weights_of(model).items()}
    names = [name for name, _ in model.named_parameters()]
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{names[i]}.{k}": v for k, v in state.items()}
    return tensors


def restore_training(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors, named as in `training_tensors`. Raises ValueError if the weights differ."""
    held = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    load_weights(model, held)
    state = optimizer.state_dict()
    for i, (name, _) in enumerate(model.named_parameters()):
        prefix = f"optimizer.{name}."
        held = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if held:
            state["state"][i] = held
    optimizer.load_state_dict(state)


def checkpoints(folder: Path) -> list[Path]:
    """List the complete checkpoints of several processes in a cell's folder, oldest first."""
    found = folder.glob("checkpoint-*")
    return sorted((path for path in found if path.name[11:].isdecimal()), key=step_of)


def save_together(
    group: Group, folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write a checkpoint, each process its part, then remove what it replaces."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save as save_parts

    path = folder / f"checkpoint-{step:07d}"
    unfinished = path.with_name(f"{path.name}.unfinished")
    if group.is_first:
        for left in folder.glob("checkpoint-*.unfinished"):
            shutil.rmtree(left)
        unfinished.mkdir(parents=True)
    group.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own parts
        try:
            save_parts(
                {name: tensor.detach() for name, tensor in tensors.items()},
                storage_writer=FileSystemWriter(unfinished),
                no_dist=group.world == 1,
            )
        except CheckpointException as error:  # in every process, also if one could not write
            raise NotWrittenError(
                f"{path} was not written: {_cause(error)}; the one before is intact"
            ) from None
    own = {path.name: _digest(path) for path in unfinished.glob(f"__{group.rank}_*.distcp")}
    if group.is_first:
        own[METADATA] = _digest(unfinished / METADATA)
    digests = group.gather(own)
    if group.is_first:
        parts = {name: digest for written in digests for name, digest in written.items()}
        write_checked_json(unfinished / "facts.json", {**facts, "parts": parts})
        if path.exists():  # of the same step, saved by an earlier session
            shutil.rmtree(path)
        os.replace(unfinished, path)
        for older in checkpoints(folder):
            if older != path:
                shutil.rmtree(older)
        (folder / "last.safetensors").unlink(missing_ok=True)
    group.wait()


def remove_checkpoints(folder: Path) -> None:
    """Remove all checkpoints of several processes, also unfinished ones."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path)


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # buffered


class _DataUnpickler(pickle.Unpickler):
    """Reads metadata. The name of anything else is not imported: it is an UnpicklingError."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pathlib") and name.endswith("Path"):  # where it was written
            return PurePosixPath
        if name not in DATA.get(module, ()):
            raise pickle.UnpicklingError(f"its metadata names {shown(f'{module}.{name}')}")
        return super().find_class(module, name)


def read_together(
    path: Path, model: nn.Module, optimizer: Optimizer, group: Group
) -> tuple[dict[str, Tensor], Facts]:
    """Return the tensors of a checkpoint, in the parts that this process has, and its facts.

    Each process compares its share of the files with their digests. No file runs code, or names one
    outside the folder. Raises ValueError, naming the folder, if it is damaged or of another model.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.state_dict_loader import load

    class Reader(FileSystemReader):
        def read_metadata(self, *_: Any, **__: Any) -> Metadata:
            return metadata

    if not (path / "facts.json").is_file():
        raise ValueError(f"{path} is not a readable checkpoint: it has no facts.json; {WAY_OUT}")
    facts = read_checked_json(path / "facts.json", "record", "parts", most_bytes=MOST_DATA_BYTES)
    try:
        parts = facts.pop("parts")
        for name in parts:
            if Path(name).name != name:
                raise ValueError(f"{shown(name)} must be in its folder")
            open_regular(path / name).close()  # before one process alone fails at it
        for name in [METADATA, *sorted(parts)[group.rank :: group.world]]:
            if _digest(path / name) != parts.get(name):
                raise ValueError(f"{shown(name)} does not match its checksum")
        content = read_bytes(path / METADATA, MOST_DATA_BYTES)
        metadata: Metadata = _DataUnpickler(io.BytesIO(content)).load()
        for info in metadata.storage_data.values():
            if info.relative_path not in parts or getattr(info, "transform_descriptors", None):
                raise ValueError(f"its metadata names {shown(info.relative_path)}")
        tensors = _like(model, optimizer, set(metadata.state_dict_metadata))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(tensors, storage_reader=Reader(path), no_dist=True)  # each process by itself
    except (CheckpointException, Exception) as error:  # a damaged pickle raises almost anything
        why, complete = _cause(error), all(os.path.lexists(path / name) for name in parts)
        advice = way_out(path, error) if complete and isinstance(error, NotReadError) else WAY_OUT
        raise ValueError(f"{path} is not a readable checkpoint: {why}; {advice}") from None
    return tensors, facts


def _cause(error: BaseException) -> str:
    """Return why a checkpoint cannot be read or written, without torch's tracebacks."""
    failures = getattr(error, "failures", None)  # of a CheckpointException, by process
    if failures:
        error = next(iter(failures.values()))[0]
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())[:200]


def _like(model: nn.Module, optimizer: Optimizer, names: set[str]) -> dict[str, Tensor]:
    """Return empty tensors for these names; those of a sharded model are sharded like it."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in weights_of(model).items():
        tensors[f"model.{name}"] = torch.zeros_like(tensor.detach())
    for name, parameter in model.named_parameters():
        own = parameter.detach()
        for key in ("exp_avg", "exp_avg_sq", "step"):  # of Adam
            if (whole := f"optimizer.{name}.{key}") in names:
                step = torch.zeros((), device=own.device)
                tensors[whole] = step if key == "step" else torch.zeros_like(own)
    if tensors.keys() != names:
        differing = sorted(tensors.keys() ^ names)
        raise ValueError(f"its tensors are not those of this model, first {differing[0]!r}")
    return tensors
