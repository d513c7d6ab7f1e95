"""What one layer of a model has for rope, and what belongs to it but is no rotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ropewalk.checks import check_int, check_number
from ropewalk.rotary.spec import RotarySpec


@dataclass(frozen=True)
class QueryTemperature:
    """Queries at position p are multiplied by 1 + beta · ln(1 + floor((p + first) / length)).

    Llama 4 has it in layers without rope (first = 1), Ministral 3 in all (first = 0).
    Source: Nakanishi 2025, arXiv 2501.19399; transformers' modeling_llama4.py.
    """

    beta: float
    length: int
    first: int = 0

    def __post_init__(self) -> None:
        check_number("beta", self.beta)
        check_int("length", self.length, 1)
        check_int("first", self.first, 0)

    def at(self, positions: Tensor) -> Tensor:
        """Return the factor for queries at integer positions (...), from 0 on: float32 (...)."""
        if positions.is_floating_point() or (positions < 0).any():
            raise ValueError(f"positions must be integers of at least 0, got {positions}")
        steps = torch.div(
            positions.to(torch.int64) + self.first, self.length, rounding_mode="floor"
        )
        return 1 + self.beta * torch.log1p(steps.to(torch.float32))


@dataclass(frozen=True)
class LayerSpec:
    """One layer's rope, and what belongs to it but is no rotation.

    rope: None where the layer has none (NoPE).
    softmax_factor: what the scores' scale is multiplied by besides (DeepSeek with YaRN).
    query_temperature: what queries are multiplied by, if anything.
    layer_type: the layer's type in config.json ("full_attention", …), if it has one.
    indexer: the rope of the indexer that chooses keys for the layer (DeepSeek-V3.2, GLM-5), where
        it has one of its own: it rotates the indexer's queries and keys, whose heads have a size of
        their own, and often pairs otherwise than `rope`.
    origins: where `rope` was read, by the names of its fields: {"theta": "rope_theta", …}, a key of
        config.json each, or "default of the model's class", or "model_type" for what a table by
        model type says. It is a note, and takes no part in comparisons.
    """

    rope: RotarySpec | None
    softmax_factor: float = 1.0
    query_temperature: QueryTemperature | None = None
    layer_type: str | None = None
    indexer: RotarySpec | None = None
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
