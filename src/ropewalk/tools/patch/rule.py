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
    try:
        _write(wanted, new)
        read = ModelSpec.from_config(new)
    except Exception as error:  # transformers checks fields of a config in its own ways
        raise ValueError(
            f"scaling must be a rule that a config of {shown(spec.model_type)} can describe, "
            f"got {shown(scaling)}: {shown(' '.join(str(error).split()), 200)}"
        ) from error
    if read.layers != wanted.layers:
        raise ValueError(
            f"scaling must be a rule that a config of {shown(spec.model_type)} can describe, "
            f"got {shown(scaling)}"
        )
    return made, new


def _scaled(rope: RotarySpec, scaling: Scaling, config: Any) -> RotarySpec:
    """Return a rope with another rule, in the form in which a config describes it."""
    if isinstance(scaling, NTKAware):  # configs have no such type; it is a larger theta
        exponent = rope.rotary_dim / (rope.rotary_dim - 2)
        return replace(rope, theta=rope.theta * scaling.factor**exponent, scaling=None)
    if isinstance(scaling, DynamicNTK):
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        if most != scaling.original_length:
            raise ValueError(
                f"scaling must have original_length={most}, the config's max_position_embeddings, "
                f"which transformers takes for it, got {scaling.original_length}"
            )
    return replace(rope, scaling=scaling)


def _write(wanted: ModelSpec, config: Any) -> None:
    """Write the ropes of a text stack into a transformers config."""
    written = wanted.to_config()
    rope_parameters = written.get("text_config", written)["rope_parameters"]
    text = config.get_text_config()
    before = getattr(text, "rope_parameters", None) or {}
    if any(isinstance(value, dict) for value in before.values()):  # also types without layers
        rope_parameters = {**before, **rope_parameters}
    text.rope_parameters = rope_parameters
    if hasattr(config, "validate"):
        config.validate()
