"""What a whole model's ropes are: one `LayerSpec` for each layer of each of its stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from ropewalk.checks import check_int, shown
from ropewalk.rotary.config.reader import read_config
from ropewalk.rotary.config.writer import write_config
from ropewalk.rotary.layer_spec import LayerSpec


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
        model = read_config(config, pairing=pairing)
        return cls(model.stacks, model.model_type)

    def __post_init__(self) -> None:
        if not isinstance(self.stacks, Mapping):
            raise TypeError(f"stacks must be a mapping of name to layers, got {shown(self.stacks)}")
        stacks = {name: tuple(layers) for name, layers in self.stacks.items()}
        for name, layers in stacks.items():
            if not all(isinstance(layer, LayerSpec) for layer in layers):
                raise TypeError(f"stacks[{name!r}] must hold a LayerSpec for each layer")
        object.__setattr__(self, "stacks", stacks)

    def to_config(
        self, form: Literal["rope_parameters", "rope_scaling"] = "rope_parameters"
    ) -> dict[str, Any]:
        """Write the ropes as fields of a config.json; `from_config` gives them back.

        Written are the stacks that the model's type has. Where one model wraps another (LLaVA,
        Pixtral), `model_type` is that of the text, and the text stack alone is written.
        `rope_parameters`: today's form. `rope_scaling`: the earlier one, with `rope_theta` beside
        it; it cannot say what differs between types of layers, and raises ValueError there.
        """
        if "text" not in self.stacks:
            raise ValueError(
                f"model must have a text stack to be written, got {shown(self.model_type)}"
            )
        return write_config(self.stacks, self.model_type, form)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The text stack."""
        return self._stack("text")

    def layer(self, layer: int, stack: str = "text") -> LayerSpec:
        """Return one layer of a stack, counted from 0."""
        layers = self._stack(stack)
        check_int("layer", layer, 0)
        if not 0 <= layer < len(layers):
            raise ValueError(f"layer must lie in 0..{len(layers) - 1} of {stack!r}, got {layer}")
        return layers[layer]

    def _stack(self, name: str) -> tuple[LayerSpec, ...]:
        if not isinstance(name, str) or name not in self.stacks:
            raise ValueError(
                f"stack must be one that the config describes, {', '.join(self.stacks) or 'none'}, "
                f"got {shown(name)}"
            )
        return self.stacks[name]
