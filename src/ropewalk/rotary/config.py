"""A model's ropes from its config.json. Plain JSON; no other library is asked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from ropewalk.rotary import axes
from ropewalk.rotary.families import STACKS, THETA, Stack
from ropewalk.rotary.model_spec import LayerSpec, ModelSpec, QueryTemperature, softmax_factor
from ropewalk.rotary.rope_fields import Fields, gather, rule
from ropewalk.rotary.scaling import Proportional, Scaling, YaRN
from ropewalk.rotary.spec import Axes, Pairing, RotarySpec
from ropewalk.rotary.towers import TOWERS, UNSUPPORTED

Section = Mapping[str, Any]

HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
WIDTH = ("embed_dim", "hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")

# Sections of a model that puts known stacks together under a type of its own (LLaVA).
PARTS = {"text": "text_config", "vision": "vision_config", "audio": "audio_config"}

NO_ATTENTION = {"conv", "linear_attention", "mamba", "recurrent", "mamba2", "moe", "mlp"}


def read(config: str | PathLike[str] | Section, *, pairing: str | None = None) -> ModelSpec:
    """See `ModelSpec.from_config`."""
    whole = _load(config)
    model_type = whole.get("model_type")
    if pairing is not None:
        return ModelSpec(
            {"text": _layers(whole, Stack(pairing=cast(Pairing, pairing)))}, model_type
        )
    sections = _sections(whole)
    if model_type not in TOWERS and "text" in sections:
        model_type = sections["text"][0]["model_type"]  # of LLaVA, its language model's
    stacks = {name: _layers(section, stack) for name, (section, stack) in sections.items()}
    return ModelSpec(stacks, model_type)


def _load(config: str | PathLike[str] | Section) -> Section:
    """The JSON of a path, of a model's folder, of a dictionary or of a transformers config."""
    if isinstance(config, Mapping):
        return config
    if hasattr(config, "to_dict"):
        return cast(Section, config.to_dict())
    if not isinstance(config, (str, PathLike)):
        raise TypeError(
            f"config must be a path, a dictionary or a transformers config, got {config!r}"
        )
    path = Path(fspath(config))
    path = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"config must be a config.json or its folder, got {path}: no such file"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"config must be a readable JSON file, got {path}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"config must hold a JSON object, got {type(found).__name__} in {path}")
    return found


def _sections(whole: Section) -> dict[str, tuple[Section, Stack]]:
    """Each stack's section of the config, and the conventions of its family."""
    model_type = whole.get("model_type")
    if model_type is None:
        raise ValueError(
            "model_type must be given: it says how dimensions are paired; or state "
            'pairing="half" or "interleaved"'
        )
    if model_type in UNSUPPORTED:
        raise ValueError(
            f"model_type must be one whose rope a RotarySpec can say, got {model_type!r}: "
            f"{UNSUPPORTED[model_type]}"
        )
    if model_type in TOWERS:
        found = {}
        for name, (path, stack) in TOWERS[model_type].items():
            section = _at(whole, path)
            if section is None and name == "text":
                section = whole  # earlier files had the text's fields at the top
            if section is not None:
                found[name] = section, STACKS[stack]
        return found
    if model_type in STACKS:
        # The first revision of DeepSeek-V2 has the type of the models before it.
        latent = model_type == "deepseek" and "qk_rope_head_dim" in whole
        return {"text": (whole, STACKS["deepseek_v2" if latent else model_type])}
    parts = {
        name: (whole[key], STACKS[whole[key]["model_type"]])
        for name, key in PARTS.items()
        if isinstance(whole.get(key), Mapping) and whole[key].get("model_type") in STACKS
    }
    if parts:
        return parts
    near = difflib.get_close_matches(str(model_type), [*STACKS, *TOWERS], n=1)
    raise ValueError(
        f"model_type must be one whose pairing is known, got {model_type!r}"
        + (f"; did you mean {near[0]!r}?" if near else "")
        + '; or state pairing="half" or "interleaved"'
    )


def _at(whole: Section, path: str) -> Section | None:
    """The section at a dotted path, None where it is missing."""
    for key in path.split(".") if path else ():
        following = whole.get(key)
        if not isinstance(following, Mapping):
            return None
        whole = following
    return whole


def _layers(section: Section, stack: Stack) -> tuple[LayerSpec, ...]:
    """One `LayerSpec` for each layer; layers that are alike share theirs."""
    given = {stack.reads.get(k, k): v for k, v in section.items() if v is not None}
    if "rope_ratio" in given:  # ChatGLM's
        given["rope_theta"] = THETA * given["rope_ratio"]
    sizes = {**stack.defaults, **given}
    made: dict[Any, LayerSpec] = {}
    layers = []
    for i, kind in enumerate(_kinds(sizes, stack, _number(sizes, LAYERS))):
        own = _of_layer(given, i)
        turns = _turns(given, stack, i, kind) and own.get("rope_theta") != 0
        key = (
            kind,
            turns,
            tuple(sorted((k, v) for k, v in own.items() if isinstance(v, (int, float)))),
        )
        if key not in made:
            made[key] = _layer({**given, **own}, stack, kind, turns=turns)
        layers.append(made[key])
    return tuple(layers)


def _kinds(section: Section, stack: Stack, count: int) -> list[str | None]:
    """The type of each layer, where layers have types."""
    given = section.get("layer_types")
    if given is not None:
        if len(given) != count:
            raise ValueError(f"layer_types must name each of {count} layers, got {len(given)}")
        return list(given)
    if stack.ratios and "compress_ratios" in section:
        return [stack.ratios[ratio] for ratio in section["compress_ratios"][:count]]
    if stack.full_every is not None:
        key, first, others = stack.full_every
        every = _number(section, (key,))
        full = [(i - first) % every == 0 for i in range(count)]
        return ["full_attention" if yes else others for yes in full]
    return [None] * count


def _of_layer(section: Section, layer: int) -> dict[str, Any]:
    """What the config says of this layer alone; a theta of 0 says that it has no rope."""
    layers = {int(key): value for key, value in section.get("per_layer_config", {}).items()}
    own = dict(layers.get(layer, {}))
    if "layer_rope_theta" in section:
        own["rope_theta"] = section["layer_rope_theta"][layer]
    return own


def _turns(section: Section, stack: Stack, layer: int, kind: str | None) -> bool:
    """Whether this layer has a rope."""
    if kind in NO_ATTENTION or kind in stack.unturned:
        return False
    if any(section.get(key, value) != value for key, value in stack.only_if.items()):
        return False
    if stack.switched:
        switches = section.get("no_rope_layers")
        if switches:
            return bool(switches[layer])  # 1 means that the rope is on
        return (layer + 1) % int(section.get("no_rope_layer_interval", 4)) != 0
    return True


def _layer(section: Section, stack: Stack, kind: str | None, *, turns: bool) -> LayerSpec:
    defaults = dict(stack.defaults)
    own = stack.of_kind.get(kind or "", {})
    for key, instead in own.items():
        for place in (section := dict(section), defaults):
            if instead in place:
                place[key] = place[instead]
    if kind in stack.unscaled:
        section = {k: v for k, v in section.items() if k != "rope_scaling"}
    named = stack.named.get(kind, kind) if kind is not None else None
    found = gather(section, named, defaults) if turns else None
    if found is None:
        return LayerSpec(
            None, query_temperature=_temperature({**defaults, **section}, stack, None), kind=kind
        )
    rope = LAYOUTS[stack.layout]({**defaults, **section}, stack, found)
    factor = 1.0
    if stack.layout == "latent" and isinstance(rope.scaling, YaRN) and rope.scaling.mscale_all_dim:
        factor = softmax_factor(rope.scaling.mscale_all_dim, rope.scaling.factor)
    return LayerSpec(rope, factor, _temperature(section, stack, found), kind)


def _head(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """A rope on a head's leading dimensions, or on all."""
    size = _head_dim(section)
    if "qk_rope_head_dim" in section:
        raise ValueError(
            f"qk_rope_head_dim must be absent, for this model turns its heads' leading dimensions, "
            f"got {section['qk_rope_head_dim']}"
        )
    scaling = _rule(section, stack, found)
    part = found.get("partial_rotary_factor", 1.0)
    if isinstance(scaling, Proportional):
        part = 1.0
    elif part != 1.0 and not stack.partial:
        raise ValueError(
            f"partial_rotary_factor must be absent, for this model turns whole heads, got {part}"
        )
    turning = section[stack.size] if stack.size and stack.size in section else int(size * part)
    return _spec(stack, found, scaling, size, turning, axes=_several(stack, found, turning))


def _rule(section: Section, stack: Stack, found: Fields) -> Scaling | None:
    return rule(
        {**found, **(stack.fixed if found["rope_type"] == "yarn" else {})}, section, stack.extra
    )


def _latent(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """Multi-head latent attention: a part of the head has no position, the rest turns."""
    still, turning = (_number(section, (f"qk_{part}_head_dim",)) for part in ("nope", "rope"))
    return _spec(stack, found, _rule(section, stack, found), still + turning, turning, still)


def _trailing(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """A rope on a head's last dimensions (DeepSeek-V4)."""
    size, turning = _head_dim(section), _number(section, ("qk_rope_head_dim",))
    return _spec(stack, found, _rule(section, stack, found), size, turning, size - turning)


def _axial(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """Image patches: all frequencies of half a head for height, and again for width."""
    size = _head_dim(section)
    by_axis = {
        "axial": lambda: axes.axial((size // 4, size // 4)),
        "width first": lambda: axes.axial((size // 4, size // 4), order=(1, 0)),
        "dealt": lambda: axes.dealt(size),
        "alternating": lambda: axes.alternating(size // 4),
        "width first, alternating": lambda: axes.alternating(size // 4, order=(1, 0)),
        "blocks": lambda: axes.axial((size // 4, size // 4)),
        "time too": lambda: axes.axial((size // 6,) * 3),
    }[stack.order or "axial"]()
    blocks = (size // 2, size // 2) if stack.order == "blocks" else None
    scaling = _rule(section, stack, found)
    return _spec(stack, found, scaling, size, 2 * len(by_axis), axes=by_axis, blocks=blocks)


LAYOUTS = {"head": _head, "latent": _latent, "trailing": _trailing, "axial": _axial}


def _spec(
    stack: Stack,
    found: Fields,
    scaling: Scaling | None,
    size: int,
    turning: int,
    start: int = 0,
    axes: Axes | None = None,
    blocks: tuple[int, ...] | None = None,
) -> RotarySpec:
    if turning % 2 and axes is None:  # GLM-4.5 shrunk: 21 of 42 dimensions make 11 pairs
        axes = tuple((0, Fraction(2 * i, turning)) for i in range((turning + 1) // 2))
        turning += 1
    if "rope_theta" not in found:
        raise ValueError("rope_theta must be given, got none")
    return RotarySpec(
        size,
        rotary_dim=turning,
        theta=found["rope_theta"],
        pairing=stack.pairing,
        write_pairing=stack.write_pairing,
        start=start,
        scaling=scaling,
        reverse=stack.reverse,
        axes=axes,
        blocks=blocks,
        continuous=stack.continuous,
    )


def _several(stack: Stack, found: Fields, turning: int) -> Axes | None:
    """M-RoPE's axes, in this family's order."""
    if stack.order is None:
        if found.get("mrope_section"):
            raise ValueError(
                f"mrope_section must be absent, for this model's positions have one axis, "
                f"got {found['mrope_section']}"
            )
        return None
    if stack.order == "in turn":
        return axes.in_turn(turning // 2)
    sections = found.get("mrope_section")
    if not sections:
        raise ValueError("mrope_section must be given: pairs of time, height, width; got none")
    if stack.order == "interleaved":
        return axes.interleaved(sections, turning // 2)
    return {"sectioned": axes.sectioned, "ernie": axes.ernie}[stack.order](sections)


def _temperature(section: Section, stack: Stack, found: Fields | None) -> QueryTemperature | None:
    """Llama 4's in layers without rope; Ministral 3's, a field of its rope, in the others."""
    if stack.switched and found is None and section.get("attn_temperature_tuning"):
        return QueryTemperature(
            section.get("attn_scale", 0.1), int(section.get("floor_scale", 8192)), first=1
        )
    if found is not None and found.get("llama_4_scaling_beta"):
        length = found["original_max_position_embeddings"]
        return QueryTemperature(found["llama_4_scaling_beta"], int(length))
    return None


def _head_dim(section: Section) -> int:
    """D: said outright, or the width over the number of heads."""
    for key in HEAD_DIM:
        if key in section:
            return _number(section, (key,))
    return _number(section, WIDTH) // _number(section, HEADS)


def _number(section: Section, keys: Sequence[str]) -> int:
    """The first of these keys that is there."""
    for key in keys:
        if key in section:
            value = section[key]
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{key} must be an integer, got {value!r}")
            return value
    raise ValueError(f"{keys[0]} must be given, got none of {', '.join(keys)}")
