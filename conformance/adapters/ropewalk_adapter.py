"""ropewalk itself, all levels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec
from ropewalk.tools.catalogue.entries import rotary_spec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def spec_of(vector: dict[str, Any]) -> RotarySpec:
    """Return the rope of a vector, of a model by its config.json."""
    if vector["config"] is None:
        return rotary_spec(vector["rope"])
    rope = ModelSpec.from_config(vector["config"]).layer(vector["layer"], "text").rope
    assert rope is not None
    return rope


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1."""
    spec, length = spec_of(vector), vector["length"]
    return spec.inverse_frequencies(length), spec.amplitude_at(length)


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    return RotaryEmbedding(spec_of(vector)).tables(
        torch.tensor(vector["positions"]), length=vector["length"]
    )


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    rope, at = RotaryEmbedding(spec_of(vector)), torch.tensor(vector["positions"])

    def heads(name: str) -> Tensor:
        return torch.tensor(vector[name], dtype=torch.float64).to(DTYPES[vector["dtype"]])[
            None, None
        ]

    if vector["cached"] is not None:
        old = RotaryEmbedding(rotary_spec(vector["cached"]["rope"]))
        before = torch.tensor(vector["cached"]["positions"])
        plain = old.unrotate(heads("k"), before, length=vector["length"])
        return [rope.rotate(plain, at, length=vector["length"])[0, 0].float()]
    return [
        rope.rotate(heads(name), at, length=vector["length"])[0, 0].float()
        for name in ("q", "k")
        if vector[name]
    ]
