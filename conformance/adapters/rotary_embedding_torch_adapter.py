"""rotary-embedding-torch: its RotaryEmbedding and apply_rotary_emb.

Its pairs are interleaved. A sequence is rotated by rotate_queries_or_keys with an offset, other
positions one token after the other, as with a cache of keys. Axes of as many pairs each are rotated
by get_axial_freqs: a grid from 0, or offsets for positions between. It has the rules linear
(interpolate_factor) and NTK (theta_rescale_factor); no vector has them interleaved, so that they
are asked at level 1 of any pairing.
"""

from __future__ import annotations

from typing import Any

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def rope_of(vector: dict[str, Any]) -> RotaryEmbedding | None:
    """Return the library's module for a vector's rope, None if it offers no such rope."""
    rope, scaling = vector["rope"], dict(vector["rope"]["scaling"])
    rule, factor = scaling.pop("rope_type"), scaling.pop("factor", 1.0)
    alpha, axes, dim = scaling.pop("alpha", None), rope["axes"], rope["rotary_dim"]
    if axes:
        dim //= axes[-1][0] + 1
    n = dim // 2
    if not (
        (rule in ("default", "linear") or (rule == "dynamic" and alpha))
        and not (scaling or rope["reverse"] or rope["blocks"] or vector["cached"])
        and (not axes or axes == [[i // n, i % n, n] for i in range(len(axes))])
        and (axes or min(vector["positions"]) >= 0)
        and rope["amplitude"] == 1
    ):
        return None
    return RotaryEmbedding(
        dim,
        theta=rope["theta"],
        interpolate_factor=factor,
        theta_rescale_factor=alpha or 1.0,
    )


def interleaved(vector: dict[str, Any]) -> bool:
    """Return whether a vector's pairs are the library's."""
    return vector["rope"]["pairing"] == vector["rope"]["write_pairing"] == "interleaved"


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1: the angles of the second of two positions, in which the rules show."""
    rope, plain = rope_of(vector), vector["rope"]["scaling"]["rope_type"] == "default"
    if rope is None or vector["rope"]["axes"] or (plain and not interleaved(vector)):
        return None
    return rope(rope.get_seq_pos(2))[1, ::2].detach(), 1.0


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope, at, start = rope_of(vector), vector["positions"], vector["rope"]["start"]
    if rope is None or not interleaved(vector):
        return None
    results = []
    for name in ("q", "k"):
        x = torch.tensor(vector[name], dtype=torch.float64).to(DTYPES[vector["dtype"]])
        if not vector[name]:
            continue
        if vector["rope"]["continuous"]:
            freqs = [rope.get_axial_freqs(1, 1, offsets=p)[0] for p in zip(*at, strict=True)]
            rows = [apply_rotary_emb(torch.cat(freqs), x)]
        elif vector["rope"]["axes"]:
            freqs = rope.get_axial_freqs(*(max(axis) + 1 for axis in at))
            rows = [apply_rotary_emb(freqs[tuple(at)], x)]
        elif start:
            rows = [apply_rotary_emb(rope(torch.tensor(at)), x, start_index=start)]
        elif at == list(range(at[0], at[0] + len(at))):
            rows = [rope.rotate_queries_or_keys(x[None, None], offset=at[0])[0, 0]]
        else:
            rows = [
                rope.rotate_queries_or_keys(row[None, None, None], offset=p)[0, 0]
                for p, row in zip(at, x, strict=True)
            ]
        results.append(torch.cat(rows).detach().float())
    return results
