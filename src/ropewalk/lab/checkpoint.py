"""Checkpoints: tensors and facts in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ropewalk.files import write_bytes
from ropewalk.lab.former_names import current_facts


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts into one safetensors file, atomically."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(whole, metadata={"facts": json.dumps(facts)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and facts back; a damaged file is an error that names it."""
    try:
        with safe_open(str(path), framework="pt") as file:
            facts = current_facts(json.loads((file.metadata() or {}).get("facts", "{}")))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file that can be read: {error}") from None


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
