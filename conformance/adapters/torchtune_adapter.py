"""torchtune: its modules of Llama (interleaved pairs), Llama 3.1, Phi-3 and Qwen2 (halves).

Their tables reach to max_seq_len and are asked by position. Llama 3.1's rope rotates interleaved
pairs, since torchtune permutes the weights of a checkpoint; its frequencies are asked of both.
"""

import torch
from offered import ORIGINAL, Offer, Result, Vector, asked, heads, joined, once
from torch import nn
from torchtune.models.llama3_1 import Llama3ScaledRoPE
from torchtune.models.phi3 import Phi3RotaryPositionalEmbeddings
from torchtune.models.qwen2 import Qwen2RotaryPositionalEmbeddings
from torchtune.modules import RotaryPositionalEmbeddings

END = 2**20  # a table of more positions takes gigabytes
PLAIN, LLAMA3 = Offer(end=END), Offer(rules=("llama3",), end=END)
ROTATED = Offer(("interleaved",), rules=("default", "llama3"), end=END)


def rope_of(vector: Vector) -> nn.Module:
    """Return the library's module for a vector's rope."""
    rope, rule, longest = vector["rope"], vector["rope"]["scaling"], max(vector["positions"]) + 1
    sizes = {"dim": rope["head_dim"], "max_seq_len": longest, "base": rope["theta"]}
    if vector in LLAMA3:
        return Llama3ScaledRoPE(
            **sizes,
            scale_factor=rule["factor"],
            low_freq_factor=rule["low_freq_factor"],
            high_freq_factor=rule["high_freq_factor"],
            old_context_len=rule[ORIGINAL],
        )
    if rope["pairing"] == "interleaved":
        return RotaryPositionalEmbeddings(**sizes)
    if vector["name"].startswith("qwen") or rope["theta"] != 10_000:
        return Qwen2RotaryPositionalEmbeddings(**sizes)
    return Phi3RotaryPositionalEmbeddings(**sizes)


@asked(PLAIN, LLAMA3)
def frequencies(vector: Vector) -> Result:
    """Level 1."""
    return rope_of(vector).theta, 1.0


@asked(PLAIN, LLAMA3)
def tables(vector: Vector) -> Result:
    """Level 2: the rows of the cache, which Phi-3 and Qwen2 have with each number twice."""
    rows = rope_of(vector).cache[torch.tensor(vector["positions"])]
    halves = rows.ndim == 2
    return [once(table, "half") for table in rows.chunk(2, -1)] if halves else rows.unbind(-1)


@asked(PLAIN, ROTATED)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    rope, at = rope_of(vector), torch.tensor(vector["positions"])[None]
    return joined(vector, [rope(x.transpose(1, 2), input_pos=at) for x in heads(vector)])
