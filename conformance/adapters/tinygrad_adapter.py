"""tinygrad.llm.model: precompute_freqs_cis and apply_rope, as its attention calls them.

Its CPU backend needs clang, so this is its interpreter in Python. The table is as long as the
model's context; each token is at its own position, as in decoding.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DEV", "PYTHON")

import numpy as np
from tinygrad import Tensor, dtypes
from tinygrad.llm.model import apply_rope, precompute_freqs_cis

CONTEXT = 16384  # of the table; a longer one takes minutes in Python
LLAMA3 = "llama-3.1-8b-instruct"  # the command line offers llama3.1:8b
MODELS = ("llama", "mistral", "qwen2", "qwen3")  # of the architectures that are loaded


def table(vector: dict[str, Any]) -> Any:
    """Return a row of the library's table for each position, or None where it has none."""
    rope, config = vector["rope"], vector["config"]
    if (
        rope["pairing"] != "half"
        or rope["write_pairing"] != "half"
        or rope["start"]
        or rope["axes"]
        or rope["reverse"]
        or vector["cached"] is not None
        or (rope["scaling"]["rope_type"] != "default" and vector["name"] != LLAMA3)
        or not all(0 <= at < CONTEXT for at in vector["positions"])
        or (config is not None and config["model_type"] not in MODELS)
    ):
        return None
    end = max(vector["positions"]) + 1
    made = precompute_freqs_cis(rope["rotary_dim"], end, rope["theta"])
    return made.numpy()[vector["positions"]]


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    found = table(vector)
    return None if found is None else np.split(found, 2, -1)


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3, of the first rope_dim dimensions as in TransformerBlock."""
    found, size = table(vector), vector["rope"]["rotary_dim"]
    if found is None:
        return None
    made = []
    for name in ("q", "k"):
        if vector[name]:
            x = Tensor(vector[name], dtype=getattr(dtypes, vector["dtype"]))[None, None]
            y = apply_rope(x[..., :size], Tensor(found)).cat(x[..., size:], dim=-1)
            made.append(y[0, 0].float().numpy())
    return made
