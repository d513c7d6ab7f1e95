"""tinygrad.llm.model: precompute_freqs_cis and apply_rope, as its attention calls them.

Its CPU backend needs clang, so this is its interpreter in Python. The table is as long as the
model's context; each token is at its own position, as in decoding.
"""

import os

os.environ.setdefault("DEV", "PYTHON")

import numpy as np
from offered import Offer, Result, Vector, arrays, joined
from tinygrad import Tensor, dtypes
from tinygrad.llm.model import apply_rope, precompute_freqs_cis

OFFERED = Offer(
    pairings=("half",),
    parts=("all", "first"),
    rules=("default", "llama3"),  # the second in a model: the command line offers llama3.1:8b
    models=("llama", "mistral", "qwen2", "qwen3"),  # of the architectures that are loaded
    end=16384,  # of the table; a longer one takes minutes in Python
)


def tables(vector: Vector) -> Result:
    """Level 2."""
    rope, at = vector["rope"], vector["positions"]
    plain = rope["scaling"]["rope_type"] == "default"
    if vector not in OFFERED or not (plain or vector["config"]):
        return None
    table = precompute_freqs_cis(rope["rotary_dim"], max(at) + 1, rope["theta"])
    return np.split(table.numpy()[at], 2, -1)


def rotate(vector: Vector) -> Result:
    """Level 3, of the first rope_dim dimensions as in TransformerBlock."""
    found, dtype = tables(vector), getattr(dtypes, vector["dtype"])
    if found is None:
        return None
    table = Tensor(np.concatenate(found, -1))
    x = [Tensor(each, dtype=dtype)[None, None] for each in arrays(vector, cut=True)]
    return joined(vector, [apply_rope(each, table) for each in x], cut=True)
