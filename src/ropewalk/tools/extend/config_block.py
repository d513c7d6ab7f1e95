"""The keys of config.json that describe a rope with another rule."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ropewalk.rotary.config.config_json import JsonObject
from ropewalk.rotary.config.conventions import SLIDING, RopeConventions
from ropewalk.rotary.config.reader import softmax_factor
from ropewalk.rotary.config.rope_fields import COMMON_FIELDS, ORIGINAL_LENGTH, ROPE_KEYS
from ropewalk.rotary.config.sections import find_sections, model_type_of, text_key
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import DynamicNTK, NTKAware, Scaling, YaRN
from ropewalk.rotary.spec import RotarySpec

LENGTH = "max_position_embeddings"


@dataclass(frozen=True)
class TextConfig:
    """A config and its section of the text.

    path: the section's dotted path, "" for the file itself. length_key: the key of the context.
    pairing: as the caller passed it, for a model type that is not known.
    """

    config: JsonObject
    model: ModelSpec
    path: str
    section: JsonObject
    conventions: RopeConventions | None
    length_key: str
    pairing: str | None = None

    @property
    def model_type(self) -> str | None:
        """The model type that decides how the text's rope is computed."""
        if self.model.model_type in MULTIMODAL_MODELS:
            return MULTIMODAL_MODELS[self.model.model_type]["text"][1]
        return self.model.model_type

    @cached_property
    def has_several_ropes(self) -> bool:
        """Whether layers differ in their ropes."""
        return len({layer.rope for layer in self.model.layers if layer.rope is not None}) > 1

    @property
    def is_latent(self) -> bool:
        """Whether attention is latent (DeepSeek): engines read its mscales in code of their own."""
        return self.conventions is not None and self.conventions.head_layout == "latent"


def text_config(
    config: JsonObject, model: ModelSpec, length_key: str | None, pairing: str | None
) -> TextConfig:
    """Return the section of the text of a config that was read as `model`."""
    own_type = model_type_of(config)
    try:
        section, conventions = find_sections(config, own_type)["text"]
    except ValueError:  # a type that is read only because the pairing was passed
        section, conventions = config, None
    path = ""
    if section is not config:
        path = text_key(config)
        if own_type in MULTIMODAL_MODELS:
            path = MULTIMODAL_MODELS[own_type]["text"][0]
    return TextConfig(config, model, path, section, conventions, length_key or LENGTH, pairing)


def scales(layer: LayerSpec, text: TextConfig) -> bool:
    """Return whether a longer context changes the rope of a layer.

    Layers with sliding attention keep theirs if the config describes each type of layers
    separately: they see only the distances of their window.
    """
    if layer.rope is None:
        return False
    conventions = text.conventions
    unscaled = frozenset() if conventions is None else conventions.unscaled_layer_types
    separate = text.has_several_ropes and layer.layer_type == SLIDING
    return layer.layer_type not in unscaled and not separate


def with_rule(rope: RotarySpec, rule: Scaling, text: TextConfig) -> RotarySpec:
    """Return a rope with a rule, and with the fields that the code of the model type sets."""
    if isinstance(rule, YaRN) and text.conventions is not None:
        rule = replace(rule, **text.conventions.yarn_fields)
    return replace(rope, scaling=rule)


def as_written(rope: RotarySpec, text: TextConfig) -> RotarySpec:
    """Return a rope in the form that a config of this model type can describe."""
    rule, conventions = rope.scaling, text.conventions
    alpha = conventions is not None and "alpha" in conventions.extra_fields
    if not isinstance(rule, NTKAware) or alpha:
        return rope
    # Configs have no such type: it is a larger theta.
    return replace(rope, theta=rule.larger_theta(rope.theta, rope.rotary_dim), scaling=None)


def section_keys(text: TextConfig, rule: Scaling, to: int) -> dict[str, Any]:
    """Return the keys of the text's section that describe a rule, in today's form.

    Raises ValueError if a config of this model type cannot describe it.
    """
    layers = tuple(_layer(layer, rule, text) for layer in text.model.layers)
    written: Any = ModelSpec({"text": layers}, text.model.model_type).to_config()
    own_type = text.model.model_type
    if own_type in MULTIMODAL_MODELS:
        for key in filter(None, MULTIMODAL_MODELS[own_type]["text"][0].split(".")):
            written = written[key]
    keys: dict[str, Any] = {
        "rope_parameters": _with_kept_fields(text, written["rope_parameters"]),
        text.length_key: rule.original_length if isinstance(rule, DynamicNTK) else to,
    }
    top = getattr(rule, "original_length", None)
    if top is not None and (ORIGINAL_LENGTH in written or ORIGINAL_LENGTH in text.section):
        keys[ORIGINAL_LENGTH] = top
    read = ModelSpec.from_config(applied(text, keys), pairing=text.pairing).layers
    if read != layers:
        raise ValueError("read back, its config would have other ropes")
    return keys


def _layer(layer: LayerSpec, rule: Scaling, text: TextConfig) -> LayerSpec:
    if layer.rope is None or not scales(layer, text):
        return layer
    rope = as_written(with_rule(layer.rope, rule, text), text)
    factor = 1.0 if text.conventions is None else softmax_factor(rope, text.conventions)
    indexer = layer.indexer and as_written(with_rule(layer.indexer, rule, text), text)
    return replace(layer, rope=rope, softmax_factor=factor, indexer=indexer)


def _with_kept_fields(text: TextConfig, written: dict[str, Any]) -> dict[str, Any]:
    """Add the fields of the config's own rope that no rule has, such as `mrope_interleaved`."""
    old = text.section.get("rope_parameters") or text.section.get("rope_scaling")
    if not isinstance(old, Mapping):
        return written
    nested = [name for name, fields in written.items() if isinstance(fields, Mapping)]
    if not nested:
        return {**written, **_kept(old, written)}
    unused = {name: fields for name, fields in old.items() if isinstance(fields, Mapping)}
    own = {name: {**written[name], **_kept(old.get(name, {}), written[name])} for name in nested}
    return {**copy.deepcopy(unused), **written, **own}


def _kept(old: Any, written: Mapping[str, Any]) -> dict[str, Any]:
    kept = (COMMON_FIELDS | {"llama_4_scaling_beta"}) - {"rope_theta", *written}
    return {k: copy.deepcopy(value) for k, value in old.items() if k in kept and value is not None}


def removed_keys(text: TextConfig) -> tuple[str, ...]:
    """Return the keys of earlier forms that contradict `rope_parameters`, if the section has them.

    transformers uses `rope_scaling` before `rope_parameters`.
    """
    conventions = text.conventions
    by_type = {} if conventions is None else conventions.keys_by_layer_type
    thetas = {name for keys in by_type.values() for name in keys.values() if "rope" in name}
    earlier = {"rope_scaling", *ROPE_KEYS, *thetas} - {"partial_rotary_factor", "rotary_pct"}
    return tuple(k for k, value in text.section.items() if k in earlier and value is not None)


def applied(text: TextConfig, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with these keys in the text's section, and without contradictory ones."""
    config: dict[str, Any] = copy.deepcopy(dict(text.config))
    section = config
    for key in filter(None, text.path.split(".")):
        section = section[key]
    for key in removed_keys(text):
        section.pop(key, None)
        if text.path:  # the top level may repeat it
            config.pop(key, None)
    section.update(copy.deepcopy(dict(keys)))
    return config


def at_path(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of a section as they are in the file: inside the objects of its path."""
    nested = dict(keys)
    for key in filter(None, reversed(path.split("."))):
        nested = {key: nested}
    return nested
