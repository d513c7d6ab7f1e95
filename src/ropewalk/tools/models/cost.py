"""Estimates of the work and the memory of one forward pass of a transformers model."""

from __future__ import annotations

from typing import Any

from torch import nn


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
