"""Keras Hub on PyTorch: keras_hub.layers.RotaryEmbedding, and the layers of its Llama and Phi-3.

Its models give it the first rotary_dim dimensions. Phi-3's layer gets all tokens, since its factors
depend on their number.
"""

import os
from functools import partial
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import torch
from keras_hub.layers import RotaryEmbedding
from keras_hub.src.models.llama.llama_rotary_embedding import LlamaRotaryEmbedding
from keras_hub.src.models.phi3.phi3_rotary_embedding import Phi3SuScaledRotaryEmbedding
from offered import ORIGINAL, Offer, Result, Vector, asked, heads, joined

HALF = partial(Offer, ("half",), ("all", "first"))
PLAIN_MODELS = ("llama", "phi3", "gemma3", "mistral", "qwen2", "qwen3", "gemma2", "gpt_neox")
OFFERED = [  # rules, and the models of which Keras Hub has a backbone whose layer gets them
    HALF(("default",), models=PLAIN_MODELS),
    HALF(("linear",), models=("llama", "gemma3")),
    HALF(("dynamic", "ntk-aware"), models=()),
    HALF(("yarn",), models=("gpt_oss",), lacks=("attention_factor", "mscale")),
    HALF(("llama3",), models=("llama",)),
    Offer(("half",), rules=("longrope",), models=("phi3",)),
]


def layer_of(rope: Vector, dtype: str) -> Any:
    """Return the layer."""
    scaling, theta = rope["scaling"], rope["theta"]
    rule, factor = scaling["rope_type"], scaling.get("factor", 1.0)
    original = scaling.get(ORIGINAL, 4096)
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
    options = {x: scaling[x] for x in ("beta_fast", "beta_slow", "truncate") if x in scaling}
    if rule == "yarn":
        options[ORIGINAL] = original
    rule = "linear" if rule == "default" else rule
    return RotaryEmbedding(theta, scaling.get("alpha", factor), rule, dtype=dtype, **options)


@asked(*OFFERED)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    layer, at = layer_of(vector["rope"], vector["dtype"]), torch.tensor(vector["positions"])
    made = []
    for head in heads(vector, cut=True):
        x = head.transpose(1, 2)
        if isinstance(layer, Phi3SuScaledRotaryEmbedding):
            full = x.new_zeros(1, vector["length"], 1, x.shape[-1])
            full[:, at] = x
            made.append(layer(full)[:, at])
        else:
            made.append(layer(x, positions=at))
    return joined(vector, made, cut=True)
