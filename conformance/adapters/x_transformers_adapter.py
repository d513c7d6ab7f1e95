"""x-transformers: its RotaryEmbedding and apply_rotary_pos_emb, as its attention layers call them.

Its pairs are interleaved, of the first dimensions, at given positions; it has the rules linear
(interpolation_factor) and NTK (base_rescale_factor); no vector has them interleaved, so that they
are asked at level 1 of any pairing.
"""

from __future__ import annotations

from typing import Any

import torch
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def rope_of(vector: dict[str, Any]) -> RotaryEmbedding | None:
    """Return the library's module for a vector's rope, None if it offers no such rope."""
    rope, scaling = vector["rope"], dict(vector["rope"]["scaling"])
    rule, factor = scaling.pop("rope_type"), scaling.pop("factor", 1.0)
    alpha = scaling.pop("alpha", None)
    if not (
        (rule in ("default", "linear") or (rule == "dynamic" and alpha))
        and not (scaling or rope["axes"] or rope["start"] or rope["reverse"] or vector["cached"])
        and rope["amplitude"] == 1
    ):
        return None
    return RotaryEmbedding(
        rope["rotary_dim"],
        base=rope["theta"],
        interpolation_factor=factor,
        base_rescale_factor=alpha or 1.0,
    )


def interleaved(vector: dict[str, Any]) -> bool:
    """Return whether a vector's pairs are the library's."""
    return vector["rope"]["pairing"] == vector["rope"]["write_pairing"] == "interleaved"


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1: the angles of position 1."""
    rope, plain = rope_of(vector), vector["rope"]["scaling"]["rope_type"] == "default"
    if rope is None or (plain and not interleaved(vector)):
        return None
    return rope(torch.tensor([1]))[0][0, 0, ::2], 1.0


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope = rope_of(vector)
    if rope is None or not interleaved(vector):
        return None
    angles, scale = rope(torch.tensor(vector["positions"]))
    heads = [
        torch.tensor(vector[name], dtype=torch.float64).to(DTYPES[vector["dtype"]])[None, None]
        for name in ("q", "k")
        if vector[name]
    ]
    return [apply_rotary_pos_emb(x, angles, scale)[0, 0].float() for x in heads]
