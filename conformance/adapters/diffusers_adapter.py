"""diffusers: get_1d_rotary_pos_embed and apply_rotary_emb of its embeddings, and its models' own.

One axis is get_1d_rotary_pos_embed with its factors (StableAudio's processor rotates the first part
of a head, OmniGen has LongRoPE). Several axes are FluxPosEmbed, whose ids may be in any order,
GLM-Image's grid and Ideogram 4's M-RoPE (both half). No function rotates cached keys again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from diffusers.models.attention_processor import StableAudioAttnProcessor2_0
from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from diffusers.models.transformers.transformer_glm_image import GlmImageRotaryPosEmbed
from diffusers.models.transformers.transformer_ideogram4 import Ideogram4MRoPE
from diffusers.models.transformers.transformer_omnigen import OmniGenSuScaledRotaryEmbedding
from torch import Tensor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def several(vector: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return the tables of several axes, each (S, D)."""
    rope, at = vector["rope"], torch.tensor(vector["positions"])
    if rope["rotary_dim"] != rope["head_dim"] or rope["scaling"]["rope_type"] != "default":
        return None
    if rope["pairing"] == "interleaved" and vector["order"] in ("axial", "width first"):
        order = list(dict.fromkeys(axis for axis, _, _ in rope["axes"]))
        sizes = [2 * sum(axis == each for axis, _, _ in rope["axes"]) for each in order]
        return FluxPosEmbed(rope["theta"], sizes)(at[order].T)
    if rope["pairing"] == "half" and vector["order"] == "interleaved":
        section = tuple(sum(axis == n for axis, _, _ in rope["axes"]) for n in range(3))
        cos, sin = Ideogram4MRoPE(rope["head_dim"], rope["theta"], section)(at.T[None])
        return cos[0], sin[0]
    if rope["pairing"] == "half" and vector["order"] == "axial" and not rope["continuous"]:
        height, width = (int(row.max()) + 1 for row in at)
        module = GlmImageRotaryPosEmbed(rope["head_dim"], patch_size=1, theta=rope["theta"])
        cos, sin = module(torch.zeros(1, 1, height, width))
        return cos[at[0] * width + at[1]], sin[at[0] * width + at[1]]
    return None


def table(vector: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return the cosines and sines, each (S, R), doubled as the pairing needs them."""
    rope, rule = vector["rope"], dict(vector["rope"]["scaling"])
    kind, half = rule.pop("rope_type"), rope["pairing"] == "half"
    if vector["config"] is not None or vector["cached"] is not None or rope["reverse"]:
        return None
    if rope["write_pairing"] != rope["pairing"] or rope["start"] or rope["amplitude"] != 1:
        return None
    if rope["axes"] is not None:
        return several(vector)
    if rope["rotary_dim"] < rope["head_dim"] and not half:
        return None
    if kind == "longrope" and half:
        original = rule["original_max_position_embeddings"]
        most = int(original * rule["factor"])
        module = OmniGenSuScaledRotaryEmbedding(
            rope["rotary_dim"], most, original, rope["theta"], rule
        )
        ids = torch.tensor([[*vector["positions"], vector["length"] - 1]])
        cos, sin = module(torch.zeros(1), ids)
        return cos[:-1], sin[:-1]
    factors = {"linear_factor": rule.get("factor")} if kind == "linear" else {}
    if kind == "dynamic" and "alpha" in rule:
        factors = {"ntk_factor": rule["alpha"]}
    if kind != "default" and not factors:
        return None
    return get_1d_rotary_pos_embed(
        rope["rotary_dim"],
        np.array(vector["positions"]),
        rope["theta"],
        use_real=True,
        repeat_interleave_real=not half,
        **factors,
    )


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    found = table(vector)
    if found is None:
        return None
    half = vector["rope"]["pairing"] == "half"
    return [each.chunk(2, -1)[0] if half else each[:, ::2] for each in found]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope, found = vector["rope"], table(vector)
    if found is None:
        return None
    x = [
        torch.tensor(vector[name], dtype=DTYPES[vector["dtype"]])[None, None] for name in ("q", "k")
    ]
    if rope["rotary_dim"] < rope["head_dim"]:
        partial = StableAudioAttnProcessor2_0().apply_partial_rotary_emb
        return [partial(each, found)[0, 0].float() for each in x]
    dim = -2 if rope["pairing"] == "half" else -1
    return [apply_rotary_emb(each, found, use_real_unbind_dim=dim)[0, 0].float() for each in x]
