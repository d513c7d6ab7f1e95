"""Write a model's layers as fields of a config.json, which `reader` reads back to equal layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import (
    CONVERTED_PAIRING_KEY,
    DOUBLING_KEY,
    LogTemperature,
    RopeConventions,
)
from ropewalk.rotary.config.head_layouts import HEAD_DIM_KEYS
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.reader import read_config
from ropewalk.rotary.config.rope_fields import ORIGINAL_LENGTH, write_scaling
from ropewalk.rotary.config.sections import without_latent_attention
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
from ropewalk.rotary.scaling import DynamicNTK, LongRoPE, QwenNTK
from ropewalk.rotary.spec import RotarySpec

FORMS = ("rope_parameters", "rope_scaling")

Layers = tuple[LayerSpec, ...]
Stacks = Mapping[str, Layers]
FieldsByLayerType = dict[str | None, dict[str, Any]]


def write_config(stacks: Stacks, model_type: str | None, form: str) -> dict[str, Any]:
    """Return the layers of each stack of the model's type as fields; see `ModelSpec.to_config`."""
    if form not in FORMS:
        raise ValueError(f'form must be "rope_parameters" or "rope_scaling", got {shown(form)}')
    if model_type is None:
        raise ValueError(
            "model_type must be set to write a config, since it decides how a config is read"
        )
    places = _places(stacks, model_type)
    config: dict[str, Any] = {"model_type": model_type}
    for stack, (path, conventions) in places.items():
        section = config
        for key in path.split(".") if path else ():
            section = section.setdefault(key, {})
        section.update(_write_section(stacks[stack], conventions, form))
    known = model_type in CONVENTIONS or model_type in MULTIMODAL_MODELS
    pairing = None if known else places["text"][1].pairing
    try:
        read = read_config(config, pairing=pairing).stacks
    except (ValueError, TypeError):
        read = {}
    differ = [stack for stack in places if read.get(stack) != stacks[stack]]
    if differ:
        raise ValueError(
            f"form must be one that can describe these ropes, got {form!r} for "
            f"{shown(model_type)}: read back, it would give others for {differ[0]!r}"
            + ('; try "rope_parameters"' if form == "rope_scaling" else "")
        )
    return config


def _places(stacks: Stacks, model_type: str) -> dict[str, tuple[str, RopeConventions]]:
    """Return each stack's path in this model's config, and its conventions."""
    if model_type in MULTIMODAL_MODELS:
        sections = MULTIMODAL_MODELS[model_type]
        if "text" not in sections:
            raise ValueError(f"model must have a text stack to be written, got {shown(model_type)}")
        return {
            stack: (path, CONVENTIONS[section_type])
            for stack, (path, section_type) in sections.items()
            if stack in stacks
        }
    rope = next((layer.rope for layer in stacks["text"] if layer.rope is not None), None)
    if model_type in CONVENTIONS:
        latent = model_type == "deepseek" and rope is not None and rope.start > 0
        return {"text": ("", CONVENTIONS["deepseek_v2" if latent else model_type])}
    return {"text": ("", RopeConventions(pairing="half" if rope is None else rope.pairing))}


def _write_section(layers: Layers, conventions: RopeConventions, form: str) -> dict[str, Any]:
    """Return a stack's section: its layers, their ropes, and the sizes that ropes need."""
    section: dict[str, Any] = {"num_hidden_layers": len(layers)}
    if any(layer.layer_type is not None for layer in layers):
        section["layer_types"] = [layer.layer_type for layer in layers]
    if conventions.reads_no_rope_layers:
        section["no_rope_layers"] = [int(layer.rope is not None) for layer in layers]
    temperatures = [layer.query_temperature for layer in layers if layer.query_temperature]
    first_one = next(iter(temperatures), None)
    if conventions.log_temperature is not None:
        section |= _log_temperature(first_one, conventions.log_temperature)
    elif first_one is not None and first_one.first:
        section |= {"attn_temperature_tuning": True, "attn_scale": first_one.beta}
        section["floor_scale"] = first_one.length
    # The first layer of each type is written for all; reading back shows if they differ.
    first_of_type = {
        layer.layer_type: (layer.rope, layer.query_temperature)
        for layer in reversed(layers)
        if layer.rope is not None
    }
    if not first_of_type:
        return section
    ropes = {layer_type: rope for layer_type, (rope, _) in first_of_type.items()}
    first = next(layer.rope for layer in layers if layer.rope is not None)
    if conventions.latent_key is not None and first.start == 0:
        section[conventions.latent_key] = False
        conventions = without_latent_attention(conventions)
    section |= {**_sizes(first, conventions), **conventions.rope_switches}
    if first.pairing != conventions.pairing:
        section[CONVERTED_PAIRING_KEY] = first.pairing
    if "layer_rope_theta" in conventions.required_keys:
        section["layer_rope_theta"] = [
            0 if layer.rope is None else layer.rope.theta for layer in layers
        ]
    by_layer_type = {
        layer_type: _rope_fields(rope, temperature, conventions)
        for layer_type, (rope, temperature) in first_of_type.items()
    }
    if form == "rope_parameters":
        section["rope_parameters"] = _rope_parameters(layers, by_layer_type, conventions)
    else:
        section |= _earlier_form(by_layer_type, conventions)
    return section | _next_to_rope_fields(ropes, conventions) | _indexers(layers, conventions)


def _log_temperature(temperature: QueryTemperature | None, keys: LogTemperature) -> dict[str, Any]:
    section: dict[str, Any] = {} if keys.switch is None else {keys.switch: temperature is not None}
    if temperature is not None:
        section[keys.length_key] = temperature.length
    return section


def _indexers(layers: Layers, conventions: RopeConventions) -> dict[str, Any]:
    """Return the size of the indexer's heads, and the layers that have one of their own."""
    if conventions.indexer is None:
        return {}
    sizes = [layer.indexer.head_dim for layer in layers if layer.indexer is not None]
    section: dict[str, Any] = {conventions.indexer.head_dim_key: sizes[0] if sizes else None}
    if conventions.shares_indexers and sizes:
        section["indexer_types"] = [
            "shared" if layer.indexer is None and layer.rope is not None else "full"
            for layer in layers
        ]
    return section


def _next_to_rope_fields(
    ropes: Mapping[str | None, RotarySpec], conventions: RopeConventions
) -> dict[str, Any]:
    """Return lengths that are next to a rope's fields, and sizes of a type of layers."""
    section: dict[str, Any] = {}
    for layer_type, rope in ropes.items():
        keys = conventions.keys_by_layer_type.get(str(layer_type), {})
        if "head_dim" in keys:
            section[keys["head_dim"]] = rope.head_dim
        if isinstance(rope.scaling, DynamicNTK):
            section["max_position_embeddings"] = rope.scaling.original_length
        if DOUBLING_KEY in conventions.extra_fields:
            section[DOUBLING_KEY] = isinstance(rope.scaling, QwenNTK)
        if isinstance(rope.scaling, QwenNTK):
            section["seq_length"] = rope.scaling.original_length
        if isinstance(rope.scaling, LongRoPE):
            section[ORIGINAL_LENGTH] = rope.scaling.original_length
    return section


def _rope_parameters(
    layers: Layers, by_layer_type: FieldsByLayerType, conventions: RopeConventions
) -> dict[Any, Any]:
    """Return the fields once if all layers have the same ones, else by layer type."""
    first = next(iter(by_layer_type.values()))
    if not conventions.layers_differ and all(
        rope_fields == first for rope_fields in by_layer_type.values()
    ):
        return first
    rope_parameters: dict[Any, Any] = {
        layer.layer_type: None for layer in layers if layer.rope is None
    }
    for layer_type, rope_fields in by_layer_type.items():
        name = conventions.rope_parameters_names.get(str(layer_type), layer_type)
        rope_parameters[name] = rope_fields
    return rope_parameters


def _earlier_form(by_layer_type: FieldsByLayerType, conventions: RopeConventions) -> dict[str, Any]:
    """Return `rope_theta`, `rope_scaling`, and the keys that only some types of layers have."""
    section: dict[str, Any] = {"rope_scaling": None}
    for layer_type, rope_fields in by_layer_type.items():
        rope_scaling = dict(rope_fields)
        keys = conventions.keys_by_layer_type.get(str(layer_type), {})
        section.setdefault(keys.get("rope_theta", "rope_theta"), rope_scaling.pop("rope_theta"))
        rope_type = rope_scaling.pop("rope_type")
        if "partial_rotary_factor" in rope_scaling and rope_type != "proportional":
            section["partial_rotary_factor"] = rope_scaling.pop("partial_rotary_factor")
        says_more = bool(rope_scaling) or rope_type != "default"
        if says_more and layer_type not in conventions.unscaled_layer_types:
            section["rope_scaling"] = {**rope_scaling, "type": rope_type}
    return section


def _sizes(rope: RotarySpec, conventions: RopeConventions) -> dict[str, Any]:
    if conventions.head_layout == "latent":
        return {"qk_nope_head_dim": rope.start, "qk_rope_head_dim": rope.rotary_dim}
    if conventions.head_layout == "trailing":
        return {"head_dim": rope.head_dim, "qk_rope_head_dim": rope.rotary_dim}
    key = next((key for key in HEAD_DIM_KEYS if key in conventions.required_keys), "head_dim")
    sizes = {key: rope.head_dim}
    if conventions.rotary_dim_key is not None:
        sizes[conventions.rotary_dim_key] = rope.rotary_dim
    return sizes


def _rope_fields(
    rope: RotarySpec, temperature: QueryTemperature | None, conventions: RopeConventions
) -> dict[str, Any]:
    """Return a layer's rope as one dictionary of today's form."""
    next_to_it = isinstance(rope.scaling, QwenNTK) and DOUBLING_KEY in conventions.extra_fields
    rope_fields = {"rope_theta": rope.theta, **write_scaling(None if next_to_it else rope.scaling)}
    if isinstance(rope.scaling, DynamicNTK):
        del rope_fields[ORIGINAL_LENGTH]  # it is max_position_embeddings there
    for name in conventions.yarn_fields:
        rope_fields.pop(name, None)
    by_factor = conventions.partial_rotary and conventions.rotary_dim_key is None
    if by_factor and rope_fields["rope_type"] != "proportional":
        rope_fields["partial_rotary_factor"] = rope.rotary_dim / rope.head_dim
    if rope.axes is not None and conventions.axis_order in ("sectioned", "interleaved", "ernie"):
        owners = list(rope.axis_of_pair)
        order = (1, 2, 0) if conventions.axis_order == "ernie" else range(rope.axis_count)
        rope_fields["mrope_section"] = [owners.count(axis) for axis in order]
    if temperature is not None and temperature.steps and not temperature.first:
        rope_fields["llama_4_scaling_beta"] = temperature.beta
    return rope_fields
