"""Another scaling rule for a model: new ropes, and a config that says so."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.reader import softmax_factor
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import DynamicNTK, NTKAware, Scaling
from ropewalk.rotary.spec import RotarySpec


def with_rule(
    config: Any, spec: ModelSpec, scaling: Scaling
) -> tuple[dict[tuple[str | None, RotarySpec], RotarySpec], Any]:
    """Return the new rope of each rope of the text stack, and a copy of the config with the rule.

    Layers of types that a model never scales (Gemma 3's sliding attention) keep their ropes. Raises
    ValueError if the config of this model type cannot describe the rule, or if the rule changes
    the scale of scores, which is not a part of the rope.
    """
    if not hasattr(config, "get_text_config"):
        raise ValueError("scaling must be left out for a model without a config of transformers")
    if "text" not in spec.stacks:
        raise ValueError(
            f"scaling must be left out for a model without a text stack, "
            f"got {', '.join(spec.stacks)}"
        )
    if not isinstance(scaling, Scaling):
        raise TypeError(
            f"scaling must be a rule of ropewalk.scaling, such as YaRN(…), got {shown(scaling)}"
        )
    conventions = CONVENTIONS.get(str(spec.model_type))
    unscaled = frozenset() if conventions is None else conventions.unscaled_layer_types
    made: dict[tuple[str | None, RotarySpec], RotarySpec] = {}
    layers = []
    for layer in spec.layers:
        rope = layer.rope
        if rope is not None and layer.layer_type not in unscaled:
            scaled = _scaled(rope, scaling, config)
            made[layer.layer_type, rope] = scaled
            rope = scaled
            if conventions and softmax_factor(rope, conventions) != layer.softmax_factor:
                raise ValueError(
                    "scaling must not change the scale of scores, which the model's attention has "
                    "stored: write the rule into config.json and load the model from it"
                )
        layers.append(replace(layer, rope=rope))
    if not made:
        raise ValueError("scaling must be left out: no layer of this model has a rope that scales")
    wanted = ModelSpec({"text": tuple(layers)}, spec.model_type)
    new = copy.deepcopy(config)
    if not _written(wanted, new):
        raise ValueError(
            f"scaling must be a rule that transformers reads back from a config of "
            f"{shown(spec.model_type)}, got {shown(scaling)}"
        )
    return made, new


def _scaled(rope: RotarySpec, scaling: Scaling, config: Any) -> RotarySpec:
    """Return a rope with another rule, in the form in which a config describes it."""
    if isinstance(scaling, NTKAware):  # configs have no such type; it is a larger theta
        return replace(rope, theta=scaling.larger_theta(rope.theta, rope.rotary_dim), scaling=None)
    if isinstance(scaling, DynamicNTK):
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        if most != scaling.original_length:
            raise ValueError(
                f"scaling must have original_length={most}, the config's max_position_embeddings, "
                f"which transformers uses instead of it, got {scaling.original_length}"
            )
    return replace(rope, scaling=scaling)


def _written(wanted: ModelSpec, config: Any) -> bool:
    """Write the ropes of a text stack into a transformers config, if it can describe them."""
    try:
        written = wanted.to_config()
        rope_parameters = written.get("text_config", written)["rope_parameters"]
        text = config.get_text_config()
        before = getattr(text, "rope_parameters", None) or {}
        if any(isinstance(value, dict) for value in before.values()):  # also types without layers
            rope_parameters = {**before, **rope_parameters}
        text.rope_parameters = rope_parameters
        if hasattr(config, "validate"):
            config.validate()
        return ModelSpec.from_config(config).layers == wanted.layers
    except Exception:  # transformers checks the fields of a config in its own ways
        return False


class ConfigChange:
    """A config of transformers in place of another, in each module that has it.

    Other objects may share the old config, so it does not change. Undoing carries fields that were
    set meanwhile over to the old one, except those of the rope.
    """

    def __init__(self, old: Any, new: Any) -> None:
        pairs = [(old, new), (old.get_text_config(), new.get_text_config())]
        self._pairs = [(one, other, dict(vars(other))) for one, other in pairs]

    def new_of(self, old: Any) -> Any:
        """Return the new config for a module's config, or None if it has another one."""
        return next((new for each, new, _ in self._pairs if each is old), None)

    def carry_over(self) -> None:
        """Set on the old configs what was set on the new ones since."""
        for old, new, before in self._pairs:
            for name, value in vars(new).items():
                of_rope = name == "rope_parameters" or hasattr(value, "to_dict")
                if value is not before.get(name) and not of_rope:
                    setattr(old, name, value)
