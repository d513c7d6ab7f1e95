"""Checkpoints: tensors and facts in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.files import (
    WAY_OUT,
    NotReadError,
    digest_of,
    open_regular,
    parse_json,
    shown_path,
    way_out,
    write_bytes,
)

MOST_HEADER_BYTES = 100_000_000  # the format's limit; a training stores its curve there
MOST_MODEL_HEADER_BYTES = 2**24  # of a finished model: 100,000 tensors
MOST_TENSORS = 100_000  # about 30 times as many as the largest published models have
NAMES_PER_TENSOR = 12  # quotation marks in a tensor's entry: name, fields, type


class DamagedFile(ValueError):  # noqa: N818, the name describes the file
    """A file of tensors that differs from what was written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts to one safetensors file, atomically, with a checksum of both."""
    whole = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    held = json.loads(json.dumps(facts))
    # The checksum is one of the facts: two metadata entries have no fixed order in the file.
    text = json.dumps({**facts, "checksum": _checksum(whole, held)})
    write_bytes(path, save(whole, metadata={"facts": text}))


def read_tensors(
    path: Path, most_header: int = MOST_HEADER_BYTES, *, unchecked: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and facts of a file that `write_tensors` wrote.

    The tensors are mapped: with `unchecked`, without comparing the checksum, none is read yet.
    Raises NotReadError, naming the file, if it cannot be opened, and DamagedFile if it is damaged.
    """
    try:
        with open_regular(path) as file:
            _check_header(file, most_header)
            if str(path) != str(path).encode(errors="replace").decode():
                raise NotReadError(f"{shown_path(path)}: rename it, the path must be UTF-8")
            with safe_open(str(path), framework="pt") as opened:
                facts = parse_json((opened.metadata() or {}).get("facts", "{}"), most_header)
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if not isinstance(facts, dict):
            raise ValueError(f"its facts are a {type(facts).__name__}")
    except NotReadError as error:
        raise NotReadError(f"{error}; {way_out(path, error)}") from None
    except OSError:  # safetensors says "no such file" for every reason
        open_regular(path).close()  # raises with the true one
        raise
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedFile(
            f"{shown_path(path)} is not a readable safetensors file: "
            f"{shown(str(error), 200)[1:-1]}; {WAY_OUT}"
        ) from None
    checksum = facts.pop("checksum", None)
    if not unchecked and checksum != _checksum(tensors, facts):
        raise DamagedFile(f"{path} is damaged: it does not match its checksum; {WAY_OUT}")
    return tensors, facts


def read_checksum(path: Path) -> str | None:
    """Return the checksum in a file's facts, or None, without reading its tensors."""
    try:
        with open_regular(path) as file:
            _check_header(file, MOST_MODEL_HEADER_BYTES)
        with safe_open(str(path), framework="pt") as opened:
            checksum = json.loads((opened.metadata() or {}).get("facts", "{}")).get("checksum")
    except (SafetensorError, ValueError, RecursionError, AttributeError, OSError):
        return None
    return checksum if isinstance(checksum, str) else None


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if weights are NaN or infinite, naming the file and the first tensor."""
    for name, tensor in tensors.items():
        part = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # of a sharded tensor
        if part.is_floating_point() and not bool(part.isfinite().all()):
            raise ValueError(
                f"{path} has NaN or infinite weights in {name!r}; train the model "
                f"again, perhaps with a lower learning_rate"
            )


def _check_header(file: BinaryIO, most_header: int) -> None:
    """Raise ValueError if the header claims too much, before anything is allocated."""
    size, stated = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
    if size > min(most_header, stated):
        raise ValueError(
            f"its header claims {size} bytes; at most {most_header} and the file's own "
            f"{stated} are read"
        )
    header = file.read(size)
    names = header.count(b'"') - header.count(b'\\"')
    if names > MOST_TENSORS * NAMES_PER_TENSOR:
        raise ValueError(f"its header names more than {MOST_TENSORS} tensors")


def _checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(digest_of(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        if tensor.numel():  # numpy's empty arrays have no strides that a view accepts
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's tensors by name; a shared tensor appears once, under its first name."""
    kept: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        kept.setdefault(id(tensor), (name, tensor))
    return dict(kept.values())


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors, named as in `weights_of`. Raises ValueError if the names differ."""
    if tensors.keys() != weights_of(module).keys():
        differing = sorted(tensors.keys() ^ weights_of(module).keys())
        raise ValueError(
            f"tensors must be those of the model, got a difference in {differing[0]!r}"
        )
    module.load_state_dict({**module.state_dict(), **tensors})
