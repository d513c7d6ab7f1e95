"""`LayerSpec`: the rope of one layer of a model, and factors of its scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ropewalk.checks import check_bool, check_int, check_number
from ropewalk.rotary.spec import RotarySpec


@dataclass(frozen=True)
class QueryTemperature:
    """Factor of queries at position p: 1 + beta · ln(1 + floor((p + first) / length)).

    Without `steps`: 1 + beta · ln((p + first) / length), or 1 if that is less.
    Llama 4 has it in layers without rope (first = 1), Ministral 3 in all layers (first = 0);
    Qwen-1 (first = 1) and Grok-2 (first = 0) have it without steps, see `logarithmic`.
    Source: Nakanishi 2025, arXiv 2501.19399; transformers' modeling_llama4.py; modeling_qwen.py.

    Example:
        >>> import torch
        >>> from ropewalk import QueryTemperature
        >>> llama4 = QueryTemperature(beta=0.1, length=8192, first=1)
        >>> llama4.at(torch.tensor([0, 8190, 8191, 100_000]))
        tensor([1.0000, 1.0000, 1.0693, 1.2565])
    """

    beta: float
    length: int
    first: int = 0
    steps: bool = True

    @classmethod
    def logarithmic(cls, length: int, first: int = 0) -> QueryTemperature:
        """Return the factor ln(p + first) / ln(length) where p + first > length, else 1.

        Source: Su 2021, kexue.fm/archives/8823; Qwen-1's `use_logn_attn`, Grok-2's
        `attn_temperature_len`.
        """
        check_int("length", length, 2)
        return cls(1 / math.log(length), length, first, steps=False)

    def __post_init__(self) -> None:
        check_number("beta", self.beta)
        check_int("length", self.length, 1)
        check_int("first", self.first, 0)
        check_bool("steps", self.steps)

    def at(self, positions: Tensor) -> Tensor:
        """Return the factor of queries at integer positions (...) of at least 0: float32 (...)."""
        if positions.is_floating_point() or (positions < 0).any():
            raise ValueError(f"positions must be integers of at least 0, got {positions}")
        counted = positions.to(torch.int64) + self.first
        if not self.steps:
            over = counted.clamp(min=self.length).to(torch.float64) / self.length
            return (1 + self.beta * over.log()).to(torch.float32)
        steps = torch.div(counted, self.length, rounding_mode="floor")
        return 1 + self.beta * torch.log1p(steps.to(torch.float32))


@dataclass(frozen=True)
class LayerSpec:
    """One layer's rope, and factors of its scores.

    rope: None if the layer has none (NoPE).
    softmax_factor: an additional factor of the scores' scale (DeepSeek with YaRN).
    query_temperature: the factor of queries, or None.
    layer_type: the layer's type in config.json ("full_attention", …), or None.
    indexer: the rope of the indexer that chooses keys for the layer (DeepSeek-V3.2, GLM-5), or
        None. It rotates the indexer's queries and keys. Their heads have another size than the
        layer's, and often another pairing.
    origins: where each field of `rope` was read: {"theta": "rope_theta", …}. A value is a key of
        config.json, "default of the model's class", or "model_type" if a table by model type has
        it. It is a note: comparisons ignore it.

    Example:
        >>> from ropewalk import ModelSpec
        >>> config = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64}
        >>> layer = ModelSpec.from_config({**config, "rope_theta": 500000.0}).layer(0)
        >>> layer.rope
        RotarySpec(head_dim=64, theta=500000.0)
        >>> layer.origins["theta"], layer.origins["pairing"]
        ('rope_theta', 'model_type')
    """

    rope: RotarySpec | None
    softmax_factor: float = 1.0
    query_temperature: QueryTemperature | None = None
    layer_type: str | None = None
    indexer: RotarySpec | None = None
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
