"""What a model of transformers costs: products and bytes of a forward pass, numbers of weights."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from torch import nn

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.tools.convert.safetensors_folder import INDEX, read_safetensors, read_weight_map


def work_of(model: nn.Module, count: int) -> float:
    """Return the products of a pass: linear in the tokens, and attention's, quadratic."""
    text = _text(model)
    width, layers = getattr(text, "hidden_size", 0), getattr(text, "num_hidden_layers", 0)
    return sum(p.numel() for p in model.parameters()) * count + 2 * layers * width * count**2


def least_bytes(model: nn.Module, count: int, logits: int, *, trains: bool = False) -> int:
    """Return the bytes that a pass needs at least: logits, attention's scores if eager, layers.

    logits: the tokens of which the pass returns logits. trains: with a backward pass.
    """
    text = _text(model)
    size = next(p.element_size() for p in model.parameters() if p.is_floating_point())
    width, layers = getattr(text, "hidden_size", 0), getattr(text, "num_hidden_layers", 0)
    needed = 4 * count * width * size * (layers if trains else 1)
    needed += logits * int(text.vocab_size) * size * (2 if trains else 1)
    if getattr(model.config, "_attn_implementation", None) == "eager":
        needed += getattr(text, "num_attention_heads", 1) * count**2 * size
    return needed


def _text(model: nn.Module) -> Any:
    config: Any = model.config
    return config.get_text_config(decoder=True)


ALONE = "model.safetensors"


def count_weights(folder: Path) -> int:
    """Return how many numbers transformers loads from a folder; the weights are not read.

    A folder may have other files with the same weights, such as consolidated.safetensors.

    Raises ValueError that names the file if one is missing, damaged or cut off.
    """
    return sum(
        prod(tensor.shape) for file in _loaded(folder) for tensor in read_safetensors(file).tensors
    )


def _loaded(folder: Path) -> list[Path]:
    """Return the files that transformers loads: the whole model's, or those of the index."""
    if (folder / ALONE).is_file():
        return [folder / ALONE]
    index = folder / f"model{INDEX}"
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    names = {str(name) for name in read_weight_map(index).values()}
    for name in names:
        if Path(name).name != name:
            raise ValueError(
                f"{shown_path(index)} must name files of its folder, got {shown(name)}"
            )
    return [folder / name for name in sorted(names)]
