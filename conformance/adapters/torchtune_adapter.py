"""torchtune: its modules of Llama (interleaved pairs), Llama 3.1, Phi-3 and Qwen2 (halves).

Their tables reach to max_seq_len and are asked by position. Llama 3.1's rope rotates interleaved
pairs, since torchtune permutes the weights of a checkpoint; its frequencies are asked of both.
"""

import torch
from offered import Offer, Result, Vector, asked, heads, joined, once
from torch import nn
from torchtune.models.llama3_1 import Llama3ScaledRoPE
from torchtune.models.phi3 import Phi3RotaryPositionalEmbeddings
from torchtune.models.qwen2 import Qwen2RotaryPositionalEmbeddings
from torchtune.modules import RotaryPositionalEmbeddings

END = 2**20  # a table of more positions takes gigabytes
PLAIN = Offer(end=END)
LLAMA3, ANY_LLAMA3 = (
    Offer(("interleaved",), rules=("llama3",), end=END),
    Offer(rules=("llama3",), end=END),
)


def rope_of(vector: Vector) -> nn.Module:
    """Return the library's module for a vector's rope."""
    rope, rule = vector["rope"], vector["rope"]["scaling"]
    sizes = {"dim": rope["head_dim"], "max_seq_len": max(vector["positions"]) + 1}
    if vector in ANY_LLAMA3:
        return Llama3ScaledRoPE(
            **sizes,
            base=rope["theta"],
            scale_factor=rule["factor"],
            low_freq_factor=rule["low_freq_factor"],
            high_freq_factor=rule["high_freq_factor"],
            old_context_len=rule["original_max_position_embeddings"],
        )
    kind = Phi3RotaryPositionalEmbeddings
    if rope["pairing"] == "interleaved":
        kind = RotaryPositionalEmbeddings
    elif vector["name"].startswith("qwen") or rope["theta"] != 10_000:
        kind = Qwen2RotaryPositionalEmbeddings
    return kind(**sizes, base=rope["theta"])


@asked(PLAIN, ANY_LLAMA3)
def frequencies(vector: Vector) -> Result:
    """Level 1."""
    return rope_of(vector).theta, 1.0


@asked(PLAIN, ANY_LLAMA3)
def tables(vector: Vector) -> Result:
    """Level 2: the rows of the cache, which Phi-3 and Qwen2 have with each number twice."""
    rows = rope_of(vector).cache[torch.tensor(vector["positions"])]
    if rows.ndim == 3:
        return rows.unbind(-1)
    return [once(table, "half") for table in rows.chunk(2, -1)]


@asked(PLAIN, LLAMA3)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    rope, at = rope_of(vector), torch.tensor(vector["positions"])[None]
    return joined(vector, [rope(x.transpose(1, 2), input_pos=at) for x in heads(vector)])
