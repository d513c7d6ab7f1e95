"""The model of a cell: built from its config, or read from its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ropewalk.checks import shown
from ropewalk.lab.config import Config, validated
from ropewalk.lab.presets import fields_of_other_tasks
from ropewalk.lab.tensors import (
    MOST_MODEL_HEADER_BYTES,
    check_finite,
    load_weights,
    read_tensors,
    weights_of,
)
from ropewalk.model import LanguageModel, Transformer, initialize

Model = Transformer | LanguageModel


def build_model(config: Config, encoding: str, seed: int, vocabulary: int) -> Model:
    """Return a cell's model; each parameter is drawn from the seed and its own name."""
    model = _empty_model(config, encoding, vocabulary)
    initialize(model, seed)
    return model


def _empty_model(config: Config, encoding: str, vocabulary: int) -> Model:
    shape, stacks = config.shape(vocabulary), config.stacks(encoding)
    if config.task == "translation":
        return Transformer(shape, **stacks)
    return LanguageModel(shape, *stacks.values(), causal=config.causal)


def load_model(path: Path, device: torch.device) -> tuple[Model, Config]:
    """Return the model of a `model.safetensors` or a snapshot, in eval mode, and its config.

    Raises ValueError, naming the file, if its facts do not describe its tensors (before anything is
    allocated from them) or if weights are NaN or infinite.
    """
    tensors, facts = read_tensors(path, MOST_MODEL_HEADER_BYTES)
    config, encoding, vocabulary = _described(path, tensors, facts)
    with torch.device("meta"), _NothingDrawn():  # shapes only; nothing is allocated
        empty = _empty_model(config, encoding, vocabulary)
    wanted = weights_of(empty)
    for name in sorted(wanted.keys() ^ tensors.keys()):
        what = "lacks the tensor" if name in wanted else "has an unexpected tensor"
        raise ValueError(f"{path} {what} {name!r}; {_WAY_OUT}")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape or tensor.dtype != wanted[name].dtype:
            raise ValueError(
                f"{path}: {name!r} is {_kind(tensor)} but the file's config requires "
                f"{_kind(wanted[name])}; {_WAY_OUT}"
            )
    check_finite(path, tensors)
    model = build_model(config, encoding, facts["seed"], vocabulary)
    load_weights(model, tensors)
    return model.to(device).eval(), config


class _NothingDrawn(TorchFunctionMode):
    """Skip initial values: to draw those without memory, torch first imports code for 2 seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


_WAY_OUT = "it is damaged or not a ropewalk model: train it again or choose another file"


def _described(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> tuple[Config, str, int]:
    """Return config, encoding and vocabulary of a file. Raises if sizes exceed its tensors."""
    fields, encoding, seed = (facts.get(name) for name in ("config", "encoding", "seed"))
    if not isinstance(fields, dict) or not isinstance(encoding, str):
        raise ValueError(f"{path} is not a ropewalk model: it has no config")
    table = tensors.get("embedding.weight")
    if table is None or table.ndim != 2:
        raise ValueError(f"{path} lacks the tensor 'embedding.weight' (V, width); {_WAY_OUT}")
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise ValueError(f"{path} must have a seed, got {shown(seed)}; {_WAY_OUT}")
    numbers = sum(tensor.numel() for tensor in tensors.values())
    unused = fields_of_other_tasks(str(fields.get("task", "translation")))
    # No size of a model exceeds its count of numbers, and it has no more layers than tensors.
    for name, most in {
        **dict.fromkeys(("width", "heads", "kv_heads", "feed_forward"), numbers),
        **dict.fromkeys(("layers", "encoder_layers", "decoder_layers"), len(tensors)),
    }.items():
        value = fields.get(name)
        if type(value) is int and value > most and name not in unused:
            raise ValueError(
                f"{path} claims {name}={shown(value)} but has {numbers} numbers in "
                f"{len(tensors)} tensors; {_WAY_OUT}"
            )
    config = validated({**fields, "encodings": (encoding,)}, f"{path} has an invalid config: ")
    return config, encoding, table.shape[0]


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def load_translator(path: Path, device: torch.device) -> tuple[Transformer, Config]:
    """Return a translation model and its config. Raises ValueError for another task."""
    model, config = load_model(path, device)
    if not isinstance(model, Transformer):
        raise ValueError(f"{path} must be a model for task translation, got one for {config.task}")
    return model, config
