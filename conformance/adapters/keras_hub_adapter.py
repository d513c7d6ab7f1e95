"""Keras Hub on PyTorch: keras_hub.layers.RotaryEmbedding, and the layers of its Llama and Phi-3.

Its models give it the first rotary_dim dimensions. Phi-3's layer gets all tokens, since its factors
depend on their number.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import numpy as np
import torch
from keras_hub.layers import RotaryEmbedding
from keras_hub.src.models.llama.llama_rotary_embedding import LlamaRotaryEmbedding
from keras_hub.src.models.phi3.phi3_rotary_embedding import Phi3SuScaledRotaryEmbedding

MODELS = {  # of which Keras Hub has a backbone with this layer, and the rules that it offers
    "llama": ("default", "linear", "llama3"),
    "phi3": ("default", "longrope"),
    "gpt_oss": ("yarn",),
    "gemma3": ("default", "linear"),
    **dict.fromkeys(("mistral", "qwen2", "qwen3", "gemma2", "gpt_neox"), ("default",)),
}
RULES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def layer_of(rope: dict[str, Any], rules: tuple[str, ...], dtype: str) -> Any:
    """Return the layer, or None where there is none for the rope."""
    scaling, theta = rope["scaling"], rope["theta"]
    rule, factor = scaling["rope_type"], scaling.get("factor", 1.0)
    original = scaling.get("original_max_position_embeddings", 4096)
    if rule not in rules or {"use_dynamic_ntk", "attention_factor", "mscale"} & set(scaling):
        return None
    if rule == "llama3":
        return LlamaRotaryEmbedding(
            theta,
            frequency_adjustment_factor=factor,
            low_freq_factor=scaling["low_freq_factor"],
            high_freq_factor=scaling["high_freq_factor"],
            pretraining_sequence_length=original,
            dtype=dtype,
        )
    if rule == "longrope":
        short, long = scaling["short_factor"], scaling["long_factor"]
        longest = int(original * factor)
        return Phi3SuScaledRotaryEmbedding(short, long, longest, original, theta, dtype=dtype)
    if rule == "yarn":
        options = {x: scaling[x] for x in ("beta_fast", "beta_slow", "truncate") if x in scaling}
        options["original_max_position_embeddings"] = original
        return RotaryEmbedding(theta, factor, "yarn", dtype=dtype, **options)
    rule = "linear" if rule == "default" else rule
    return RotaryEmbedding(theta, scaling.get("alpha", factor), rule, dtype=dtype)


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope, config, size = vector["rope"], vector["config"], vector["rope"]["rotary_dim"]
    if (
        "interleaved" in (rope["pairing"], rope["write_pairing"])
        or rope["start"]
        or rope["axes"]
        or rope["reverse"]
        or vector["cached"] is not None
        or (rope["scaling"]["rope_type"] == "longrope" and size < rope["head_dim"])
    ):
        return None
    rules = RULES if config is None else MODELS.get(config["model_type"], ())
    layer = layer_of(rope, rules, vector["dtype"])
    if layer is None:
        return None
    made, at = [], torch.tensor(vector["positions"])
    for name in ("q", "k"):
        if vector[name]:
            x = torch.tensor(vector[name], dtype=getattr(torch, vector["dtype"]))
            if isinstance(layer, Phi3SuScaledRotaryEmbedding):
                full = torch.zeros(1, vector["length"], 1, size)
                full[0, at, 0] = x
                y = layer(full)[:, at]
            else:
                y = layer(x[None, :, None, :size], positions=at)
            y = torch.cat([y[0, :, 0], x[:, size:]], -1)
            made.append(np.array(y.detach().float()))
    return made
