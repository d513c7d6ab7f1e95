"""What a whole model's ropes are: one `LayerSpec` for each layer of each of its stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

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
        """The factor for queries at integer positions (...), from 0 on: float32 (...)."""
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
    kind: the layer's type in config.json ("full_attention", …), if it has one.
    """

    rope: RotarySpec | None
    softmax_factor: float = 1.0
    query_temperature: QueryTemperature | None = None
    kind: str | None = None


@dataclass(frozen=True)
class ModelSpec:
    """A model's ropes: for each of its stacks ("text", "vision", …) one `LayerSpec` a layer."""

    stacks: Mapping[str, tuple[LayerSpec, ...]]
    model_type: str | None = None

    @classmethod
    def from_config(
        cls, config: str | PathLike[str] | Mapping[str, Any], *, pairing: str | None = None
    ) -> ModelSpec:
        """Read a config.json: a path to it or its folder, its contents, or a transformers config.

        Legacy `rope_scaling` with its top-level keys, `rope_parameters`, and nested per-layer-type
        forms are read alike. Most configs do not say how dimensions are paired: a table by
        `model_type` does. pairing: "half" or "interleaved", to read a type that the table lacks as
        a plain text stack.

        Raises ValueError for an unknown model type or rope type, and for a key that is missing,
        contradictory or unknown to the rule, naming it. Where a key may be missing, what the
        model's own code takes is taken.
        """
        from ropewalk.rotary.config.reader import read

        return read(config, pairing=pairing)

    def __post_init__(self) -> None:
        if not isinstance(self.stacks, Mapping):
            raise TypeError(f"stacks must be a mapping of name to layers, got {self.stacks!r}")
        stacks = {name: tuple(layers) for name, layers in self.stacks.items()}
        for name, layers in stacks.items():
            if not all(isinstance(layer, LayerSpec) for layer in layers):
                raise TypeError(f"stacks[{name!r}] must hold a LayerSpec for each layer")
        object.__setattr__(self, "stacks", stacks)

    def to_config(
        self, form: Literal["rope_parameters", "rope_scaling"] = "rope_parameters"
    ) -> dict[str, Any]:
        """The text stack's rope as fields of a config.json; `from_config` gives this back.

        `rope_parameters`: today's form. `rope_scaling`: the earlier one, with `rope_theta` beside
        it; it cannot say what differs between kinds of layers, and raises ValueError there.
        """
        from ropewalk.rotary.config.writer import write

        return write(self, form)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The text stack."""
        return self._stack("text")

    def layer(self, layer: int, stack: str = "text") -> LayerSpec:
        """One layer of a stack, counted from 0."""
        layers = self._stack(stack)
        check_int("layer", layer, 0)
        if not 0 <= layer < len(layers):
            raise ValueError(f"layer must lie in 0..{len(layers) - 1} of {stack!r}, got {layer}")
        return layers[layer]

    def _stack(self, name: str) -> tuple[LayerSpec, ...]:
        if not isinstance(name, str) or name not in self.stacks:
            raise ValueError(
                f"stack must be one that the config describes, {', '.join(self.stacks) or 'none'}, "
                f"got {name!r}"
            )
        return self.stacks[name]
