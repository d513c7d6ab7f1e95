"""torchtune: its modules of Llama (interleaved pairs), Llama 3.1, Phi-3 and Qwen2 (halves).

Their tables reach to max_seq_len and are asked by position. Llama 3.1's rope rotates interleaved
pairs, since torchtune permutes the weights of a checkpoint; its frequencies are asked of both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchtune.models.llama3_1 import Llama3ScaledRoPE
from torchtune.models.phi3 import Phi3RotaryPositionalEmbeddings
from torchtune.models.qwen2 import Qwen2RotaryPositionalEmbeddings
from torchtune.modules import RotaryPositionalEmbeddings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LONGEST = 2**20  # a table of more positions takes gigabytes


def rope_of(vector: dict[str, Any]) -> nn.Module | None:
    """Return the library's module for a vector's rope, None if it offers no such rope."""
    rope, scaling, at = vector["rope"], vector["rope"]["scaling"], vector["positions"]
    if (
        (rope["axes"] or rope["reverse"] or rope["amplitude"] != 1 or vector["cached"])
        or rope["rotary_dim"] != rope["head_dim"]
        or rope["pairing"] != rope["write_pairing"]
        or not 0 <= min(at) <= max(at) < LONGEST
    ):
        return None
    sizes = {"dim": rope["head_dim"], "max_seq_len": max(at) + 1, "base": rope["theta"]}
    if scaling["rope_type"] == "llama3":
        return Llama3ScaledRoPE(
            **sizes,
            scale_factor=scaling["factor"],
            low_freq_factor=scaling["low_freq_factor"],
            high_freq_factor=scaling["high_freq_factor"],
            old_context_len=scaling["original_max_position_embeddings"],
        )
    if scaling["rope_type"] != "default":
        return None
    if rope["pairing"] == "interleaved":
        return RotaryPositionalEmbeddings(**sizes)
    if vector["name"].startswith("qwen") or rope["theta"] != 10_000:
        return Qwen2RotaryPositionalEmbeddings(**sizes)
    return Phi3RotaryPositionalEmbeddings(**sizes)


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1."""
    rope = rope_of(vector)
    return rope and (rope.theta, 1.0)


def tables(vector: dict[str, Any]) -> Any:
    """Level 2: the rows of the cache, which Phi-3 and Qwen2 have with each number twice."""
    rope = rope_of(vector)
    if rope is None:
        return None
    rows, half = rope.cache[torch.tensor(vector["positions"])], vector["rope"]["head_dim"] // 2
    if rows.ndim == 3:
        return rows[..., 0], rows[..., 1]
    return rows[:, :half], rows[:, 2 * half : 3 * half]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope, at = rope_of(vector), torch.tensor(vector["positions"])
    scaled = vector["rope"]["scaling"]["rope_type"] == "llama3"
    if rope is None or (scaled and vector["rope"]["pairing"] == "half"):
        return None

    def turn(x: Tensor) -> Tensor:
        return rope(x[None, :, None], input_pos=at[None])[0, :, 0].float()

    return [
        turn(torch.tensor(vector[name], dtype=torch.float64).to(DTYPES[vector["dtype"]]))
        for name in ("q", "k")
        if vector[name]
    ]
