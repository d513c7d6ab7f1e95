"""`ModelSpec`: all ropes of a model, one `LayerSpec` for each layer of each stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from ropewalk.checks import check_int, shown
from ropewalk.rotary.config.diffusers_types import MODELS as DIFFUSERS_MODELS
from ropewalk.rotary.config.reader import read_config
from ropewalk.rotary.layer_spec import LayerSpec


@dataclass(frozen=True)
class ModelSpec:
    """A model's ropes: a `LayerSpec` for each layer of each stack ("text", "vision", …).

    Example:
        >>> from ropewalk import ModelSpec
        >>> config = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64}
        >>> model = ModelSpec.from_config({**config, "rope_theta": 500000.0})
        >>> len(model.layers), model.layer(1).rope
        (2, RotarySpec(head_dim=64, theta=500000.0))
        >>> model.to_config()["rope_parameters"]
        {'rope_theta': 500000.0, 'rope_type': 'default'}
    """

    stacks: Mapping[str, tuple[LayerSpec, ...]]
    model_type: str | None = None

    @classmethod
    def from_config(
        cls, config: str | PathLike[str] | Mapping[str, Any], *, pairing: str | None = None
    ) -> ModelSpec:
        """Read a config.json: a path to it or its folder, its contents, or a library's own object.

        The object is a config of transformers or a model of diffusers. In a config of diffusers,
        `_class_name` is the type, and stacks are kinds of blocks by their names in the model, such
        as "transformer_blocks"; blocks without a rope are layers without one.

        All forms are read: legacy `rope_scaling` with its top-level keys, `rope_parameters`, and
        nested forms for each layer type. Most configs do not say how dimensions are paired: a table
        by `model_type` does. pairing: "half" or "interleaved"; it lets a type that the table lacks
        be read as a plain text stack.

        Raises ValueError for an unknown model type or rope type. Raises ValueError that names the
        key for one that is missing, contradictory or unknown to the rule. A key that may be missing
        has the default of the model's own code.
        """
        return cls(*read_config(config, pairing=pairing))

    def __post_init__(self) -> None:
        if not isinstance(self.stacks, Mapping):
            raise TypeError(f"stacks must be a mapping of name to layers, got {shown(self.stacks)}")
        stacks = {name: tuple(layers) for name, layers in self.stacks.items()}
        for name, layers in stacks.items():
            if not all(isinstance(layer, LayerSpec) for layer in layers):
                raise TypeError(f"stacks[{name!r}] must have a LayerSpec for each layer")
        object.__setattr__(self, "stacks", stacks)

    def to_config(
        self, form: Literal["rope_parameters", "rope_scaling"] = "rope_parameters"
    ) -> dict[str, Any]:
        """Return the ropes as fields of a config.json, which `from_config` reads back.

        The fields describe the stacks that the model's type has. If one model wraps another (LLaVA,
        Pixtral), `model_type` is that of the text, and only the text stack is written.
        `rope_parameters`: today's form. `rope_scaling`: the earlier one, with `rope_theta` next to
        it. It has no place for differences between layer types: raises ValueError for these.
        """
        if "text" not in self.stacks:
            raise ValueError(
                f"model must have a text stack to be written, got {shown(self.model_type)}"
            )
        from ropewalk.rotary.config.writer import write_config  # late: few write a config

        return write_config(self.stacks, self.model_type, form)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The layers of `main_stack`."""
        return self._stack(self.main_stack)

    @property
    def main_stack(self) -> str:
        """The name of the text stack; in a model of diffusers, of its first blocks."""
        return next(iter(self.stacks), "text") if self.model_type in DIFFUSERS_MODELS else "text"

    def layer(self, layer: int, stack: str | None = None) -> LayerSpec:
        """Return one layer of a stack, counted from 0; None: of `main_stack`."""
        stack = self.main_stack if stack is None else stack
        layers = self._stack(stack)
        check_int("layer", layer, 0)
        if not 0 <= layer < len(layers):
            raise ValueError(f"layer must be in 0..{len(layers) - 1} of {stack!r}, got {layer}")
        return layers[layer]

    def _stack(self, name: str) -> tuple[LayerSpec, ...]:
        if not isinstance(name, str) or name not in self.stacks:
            raise ValueError(
                f"stack must be one that the config describes: {', '.join(self.stacks) or 'none'}, "
                f"got {shown(name)}"
            )
        return self.stacks[name]
