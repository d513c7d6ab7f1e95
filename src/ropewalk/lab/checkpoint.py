"""Checkpoints: tensors and facts in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.files import WAY_OUT, digest_of, parse_json, shown_path, warn_unchecked, write_bytes
from ropewalk.lab.former_names import current_facts

MOST_HEADER_BYTES = 100_000_000  # the format's own bound; a training keeps each of its steps there
MOST_MODEL_HEADER_BYTES = 2**24  # of a finished model: 100,000 tensors
MOST_TENSORS = 100_000  # some 30 times as many as the largest published models have
NAMES_PER_TENSOR = 12  # quotation marks of a tensor's entry: its name, its fields, its type


class DamagedFile(ValueError):  # noqa: N818, it says what the file is
    """A file of tensors that is not what was written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts into one safetensors file, atomically, with a checksum of both."""
    whole = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    held = json.loads(json.dumps(facts))
    # Among the facts: metadata of two names would have no order, and files no fixed bytes.
    text = json.dumps({**facts, "checksum": _checksum(whole, held)})
    write_bytes(path, save(whole, metadata={"facts": text}))


def read_tensors(
    path: Path, most_header: int = MOST_HEADER_BYTES
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and facts back; a file without a checksum is read with a warning.

    Raises ValueError, naming the file, where it is damaged, and OSError where it may not be read.
    """
    try:
        tensors, facts = _read(path, most_header)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedFile(
            f"{shown_path(path)} is not a safetensors file that can be read: "
            f"{shown(str(error), 200)[1:-1]}; {WAY_OUT}"
        ) from None
    checksum = facts.pop("checksum", None)
    if checksum is None:
        warn_unchecked(path)
    elif checksum != _checksum(tensors, facts):
        raise DamagedFile(f"{path} is damaged: its content does not give its checksum; {WAY_OUT}")
    return tensors, current_facts(facts)


def read_checksum(path: Path) -> str | None:
    """Give the checksum that a file names, without reading its tensors; None: it names none."""
    try:
        _check_header(path, MOST_MODEL_HEADER_BYTES)
        with safe_open(str(path), framework="pt") as file:
            found = json.loads((file.metadata() or {}).get("facts", "{}")).get("checksum")
    except (SafetensorError, ValueError, RecursionError, AttributeError, OSError):
        return None
    return found if isinstance(found, str) else None


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are NaN or infinite, naming the file and the first such tensor."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(
                f"{path} holds weights that are NaN or infinite, in {name!r}; train the model "
                f"again, perhaps with a lower learning_rate"
            )


def _read(path: Path, most_header: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    _check_header(path, most_header)
    with safe_open(str(path), framework="pt") as file:
        facts = parse_json((file.metadata() or {}).get("facts", "{}"), most_header)
        if not isinstance(facts, dict):
            raise ValueError(f"its facts are a {type(facts).__name__}")
        return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118


def _check_header(path: Path, most_header: int) -> None:
    """Bound what a header may claim before anything of it is allocated."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:  # safetensors says "No such file" of one that may not be read
        size = int.from_bytes(file.read(8), "little")
        if size > min(most_header, status.st_size):
            raise ValueError(
                f"its header claims {size} bytes; at most {most_header} and the file's own "
                f"{status.st_size} are read"
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
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Give a module's tensors by name; one that several layers share comes once, by its first."""
    kept: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        kept.setdefault(id(tensor), (name, tensor))
    return dict(kept.values())


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors as ``weights_of`` names them into a module; it must have just these."""
    if tensors.keys() != weights_of(module).keys():
        differing = sorted(tensors.keys() ^ weights_of(module).keys())
        raise ValueError(
            f"tensors must be those of the model, got a difference in {differing[0]!r}"
        )
    module.load_state_dict({**module.state_dict(), **tensors})
