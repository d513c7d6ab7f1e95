"""A model's text ropes as fields of a config.json, which `config.read` reads back to the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.rotary.config.conventions import Stack
from ropewalk.rotary.config.fields import Fields, as_fields
from ropewalk.rotary.config.head_layouts import HEAD_DIM
from ropewalk.rotary.config.multimodal_models import TOWERS
from ropewalk.rotary.config.reader import read
from ropewalk.rotary.config.text_models import STACKS
from ropewalk.rotary.model_spec import LayerSpec, ModelSpec
from ropewalk.rotary.scaling import DynamicNTK, LongRoPE
from ropewalk.rotary.spec import RotarySpec

FORMS = ("rope_parameters", "rope_scaling")


def write(model: ModelSpec, form: str) -> dict[str, Any]:
    """See `ModelSpec.to_config`."""
    if form not in FORMS:
        raise ValueError(f'form must be "rope_parameters" or "rope_scaling", got {form!r}')
    if model.model_type is None:
        raise ValueError("model_type must be set to write a config, for it says how to read one")
    path, stack = _place(model)
    section = _section(model.layers, stack, form)
    written = {"model_type": model.model_type, **(section if not path else {})}
    inner = written
    for key in path.split(".") if path else ():
        inner[key] = inner = {}
    inner.update(section)
    if _read_back(written, model) != model.layers:
        raise ValueError(
            f"form must be one that can say these ropes, got {form!r} for {model.model_type!r}: "
            f"read back it would give others"
            + ('; try "rope_parameters"' if form == "rope_scaling" else "")
        )
    return written


def _place(model: ModelSpec) -> tuple[str, Stack]:
    """Where the text stack stands in this model's config, and its family's conventions."""
    name = str(model.model_type)
    if name in TOWERS:
        if "text" not in TOWERS[name]:
            raise ValueError(f"model must have a text stack to be written, got {name!r}")
        path, stack = TOWERS[name]["text"]
        return path, STACKS[stack]
    rope = next((layer.rope for layer in model.layers if layer.rope is not None), None)
    if name in STACKS:
        latent = name == "deepseek" and rope is not None and rope.start > 0
        return "", STACKS["deepseek_v2" if latent else name]
    return "", Stack(pairing="half" if rope is None else rope.pairing)


def _read_back(written: Mapping[str, Any], model: ModelSpec) -> tuple[LayerSpec, ...] | None:
    known = model.model_type in STACKS or model.model_type in TOWERS
    pairing = None if known else _place(model)[1].pairing
    try:
        return read(written, pairing=pairing).layers
    except (ValueError, TypeError):
        return None


def _section(layers: tuple[LayerSpec, ...], stack: Stack, form: str) -> dict[str, Any]:
    section: dict[str, Any] = {"num_hidden_layers": len(layers)}
    if any(layer.kind is not None for layer in layers):
        section["layer_types"] = [layer.kind for layer in layers]
    if stack.switched:
        section["no_rope_layers"] = [int(layer.rope is not None) for layer in layers]
    by_kind = {layer.kind: layer for layer in reversed(layers) if layer.rope is not None}
    section |= _temperature(layers)
    ropes = {kind: layer.rope for kind, layer in by_kind.items() if layer.rope is not None}
    if not ropes:
        return section
    first = next(iter(reversed(ropes.values())))
    section |= {**_sizes(first, stack), **stack.only_if}
    if "layer_rope_theta" in stack.needs:
        section["layer_rope_theta"] = [
            0 if layer.rope is None else layer.rope.theta for layer in layers
        ]
    fields = {kind: _fields(layer, stack) for kind, layer in by_kind.items()}
    apart = stack.nested or stack.of_kind or stack.unscaled
    alike = not apart and all(a == b for a in fields.values() for b in fields.values())
    if form == "rope_parameters":
        silent = {layer.kind: None for layer in layers if layer.rope is None} if not alike else {}
        names = {kind: stack.named.get(str(kind), kind) for kind in fields}
        nested = {**silent, **{names[kind]: each for kind, each in fields.items()}}
        section["rope_parameters"] = next(iter(fields.values())) if alike else nested
    else:
        section |= _earlier(fields, stack)
    for kind, rope in ropes.items():
        for key, instead in stack.of_kind.get(str(kind), {}).items():
            if key == "head_dim":
                section[instead] = rope.head_dim
    for rope in ropes.values():
        if isinstance(rope.scaling, DynamicNTK):
            section["max_position_embeddings"] = rope.scaling.original_length
        if isinstance(rope.scaling, LongRoPE):
            section["original_max_position_embeddings"] = rope.scaling.original_length
    return section


def _earlier(fields: Mapping[str | None, Fields], stack: Stack) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling`, and the keys of their own that some kinds of layers have."""
    section: dict[str, Any] = {"rope_scaling": None}
    for kind, each in fields.items():
        rest = dict(each)
        theta = rest.pop("rope_theta")
        own = stack.of_kind.get(str(kind), {}).get("rope_theta", "rope_theta")
        section.setdefault(own, theta)
        for key in ("partial_rotary_factor",):
            if key in rest and rest["rope_type"] != "proportional":
                section[key] = rest.pop(key)
        rest["type"] = rest.pop("rope_type")
        if kind not in stack.unscaled and (len(rest) > 1 or rest["type"] != "default"):
            section["rope_scaling"] = rest
    return section


def _sizes(rope: RotarySpec, stack: Stack) -> dict[str, Any]:
    if stack.layout == "latent":
        return {"qk_nope_head_dim": rope.start, "qk_rope_head_dim": rope.rotary_dim}
    if stack.layout == "trailing":
        return {"head_dim": rope.head_dim, "qk_rope_head_dim": rope.rotary_dim}
    size = {stack.size: rope.rotary_dim} if stack.size is not None else {}
    name = next((key for key in HEAD_DIM if key in stack.needs), "head_dim")
    return {name: rope.head_dim, **size}


def _fields(layer: LayerSpec, stack: Stack) -> Fields:
    """A layer's rope as one dictionary of today's form."""
    rope = layer.rope
    assert rope is not None
    written = {"rope_theta": rope.theta, **as_fields(rope.scaling)}
    if isinstance(rope.scaling, DynamicNTK):
        del written["original_max_position_embeddings"]  # it is max_position_embeddings there
    for key in stack.fixed:
        written.pop(key, None)
    if stack.partial and stack.size is None and written["rope_type"] != "proportional":
        written["partial_rotary_factor"] = rope.rotary_dim / rope.head_dim
    if rope.axes is not None and "mrope_section" in stack.defaults:
        owners = list(rope.axis_of_pair)
        order = (1, 2, 0) if stack.order == "ernie" else (0, 1, 2)
        written["mrope_section"] = [owners.count(axis) for axis in order]
    temperature = layer.query_temperature
    if temperature is not None and not temperature.first:
        written["llama_4_scaling_beta"] = temperature.beta
    return written


def _temperature(layers: tuple[LayerSpec, ...]) -> dict[str, Any]:
    """What Llama 4 says beside its rope."""
    for layer in layers:
        temperature = layer.query_temperature
        if temperature is not None and temperature.first:
            return {
                "attn_temperature_tuning": True,
                "attn_scale": temperature.beta,
                "floor_scale": temperature.length,
            }
    return {}
