"""A model's ropes from its config.json. Plain JSON; no other library is asked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from ropewalk.rotary.config.conventions import THETA, Stack
from ropewalk.rotary.config.fields import Fields, gather
from ropewalk.rotary.config.head_layouts import rope_of
from ropewalk.rotary.config.layer_types import kinds, number, of_layer, turns, unscaled
from ropewalk.rotary.config.multimodal_models import LEAVE_OUT, SIZES, TOWERS, UNSUPPORTED
from ropewalk.rotary.config.text_models import STACKS
from ropewalk.rotary.config.unknown_keys import (
    check_all_read,
    check_beside_sections,
    interleaved_or_not,
)
from ropewalk.rotary.model_spec import LayerSpec, ModelSpec, QueryTemperature
from ropewalk.rotary.scaling import YaRN
from ropewalk.rotary.spec import Pairing, check_pairing

Section = Mapping[str, Any]

# Sections of a model that puts known stacks together under a type of its own (LLaVA).
PARTS = {"text": "text_config", "vision": "vision_config", "audio": "audio_config"}
STATE = '; or state pairing="half" or "interleaved"'


def read(config: str | PathLike[str] | Section, *, pairing: str | None = None) -> ModelSpec:
    """See `ModelSpec.from_config`."""
    if pairing is not None:
        check_pairing("pairing", pairing)
    whole = _load(config)
    model_type = whole.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise ValueError(f"model_type must be a string, got {model_type!r}")
    known = model_type in STACKS or model_type in TOWERS or model_type in UNSUPPORTED
    if pairing is not None and not known:
        stated = Stack(pairing=cast(Pairing, pairing), defaults={}, partial=True)
        return ModelSpec({"text": _layers(whole, stated)}, model_type)
    sections = _sections(whole, model_type)
    stacks = {name: _layers(section, stack) for name, (section, stack) in sections.items()}
    usual = {layer.rope.pairing for layer in stacks.get("text", ()) if layer.rope is not None}
    if pairing is not None and usual and usual != {pairing}:
        raise ValueError(
            f"pairing must be left out for model_type {model_type!r}, which has {usual.pop()!r}, "
            f"got {pairing!r}; where weights were permuted, dataclasses.replace(rope, pairing=...)"
        )
    if model_type not in TOWERS and "text" in sections:
        model_type = sections["text"][0]["model_type"]  # of LLaVA, its language model's
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
    try:
        path = path / "config.json" if path.is_dir() else path
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError:
        raise ValueError(
            f"config must be a config.json or its folder, got {path}: no such file"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"config must be a readable JSON file, or its contents as a dictionary, "
            f"got {str(path)[:200]}: {error}"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"config must hold a JSON object, got {type(found).__name__} in {path}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file, in which a key must not stand twice with different values."""
    found = dict(pairs)
    for key, value in pairs:
        if found[key] != value:
            raise ValueError(
                f"{key} must be given once, got {value!r} and {found[key]!r} in the same object"
            )
    return found


def _sections(whole: Section, model_type: str | None) -> dict[str, tuple[Section, Stack]]:
    """Each stack's section of the config, and the conventions of its family."""
    if model_type is None:
        raise ValueError(
            f"model_type must be given, got none: it says how dimensions are paired{STATE}"
        )
    if model_type in UNSUPPORTED:
        raise ValueError(
            f"model_type must be one whose rope a RotarySpec can say, got {model_type!r}: "
            f"{UNSUPPORTED[model_type]}"
        )
    if model_type in TOWERS:
        return _of_towers(whole, model_type)
    if model_type in STACKS:
        # The first revision of DeepSeek-V2 has the type of the models before it.
        latent = model_type == "deepseek" and "qk_rope_head_dim" in whole
        return {"text": (whole, STACKS["deepseek_v2" if latent else model_type])}
    return _of_parts(whole, model_type)


def _of_towers(whole: Section, model_type: str) -> dict[str, tuple[Section, Stack]]:
    found = {}
    for name, (path, stack) in TOWERS[model_type].items():
        section = _at(whole, path)
        if section is not None and path:
            check_beside_sections(whole, section, path)
            section = {**_left_out(model_type, stack), **section}
        if section is None and name == "text":
            section = whole  # earlier files had the text's fields at the top
        if section is not None:
            found[name] = section, STACKS[stack]
    if not found:
        paths = ", ".join(path for path, _ in TOWERS[model_type].values())
        raise ValueError(f"{paths} must be given for model_type {model_type!r}, got none")
    return found


def _of_parts(whole: Section, model_type: str) -> dict[str, tuple[Section, Stack]]:
    """The parts that are known of a model that is put together of others."""
    parts: dict[str, tuple[Section, Stack]] = {}
    unknown: tuple[str, object] = ("model_type", model_type)
    for name, key in PARTS.items():
        section = whole.get(key)
        if not isinstance(section, Mapping):
            continue
        part = section.get("model_type")
        if isinstance(part, str) and part in STACKS:
            check_beside_sections(whole, section, key)
            parts[name] = {**_left_out(model_type, part), **section}, STACKS[part]
        elif name == "text":
            unknown = (f"{key}.model_type", part)
            if isinstance(part, str) and part in UNSUPPORTED:
                raise ValueError(
                    f"{key}.model_type must be one whose rope a RotarySpec can say, got {part!r}: "
                    f"{UNSUPPORTED[part]}"
                )
    if parts:
        return parts
    near = difflib.get_close_matches(str(unknown[1]), [*STACKS, *TOWERS], n=1)
    raise ValueError(
        f"{unknown[0]} must be one whose pairing is known, got {unknown[1]!r}"
        + (f"; did you mean {near[0]!r}?" if near else "")
        + STATE
    )


def _left_out(model_type: str, part: str) -> Mapping[str, int]:
    """The sizes that this model's sections leave out where they are those of their class."""
    return SIZES.get(part, {}) if model_type in LEAVE_OUT else {}


def _at(whole: Section, path: str) -> Section | None:
    """The section at a dotted path, None where it is missing."""
    for key in path.split(".") if path else ():
        following = whole.get(key)
        if following is None:
            return None
        if not isinstance(following, Mapping):
            raise ValueError(f"{key} must be a dictionary, got {following!r}")
        whole = following
    return whole


def _given(section: Section) -> dict[str, Any]:
    return {key: value for key, value in section.items() if value is not None}


def _layers(section: Section, stack: Stack) -> tuple[LayerSpec, ...]:
    """One `LayerSpec` for each layer; layers that are alike share theirs."""
    given = {stack.reads.get(key, key): value for key, value in _given(section).items()}
    stack = interleaved_or_not(given, stack)
    if "head_dim" in section and section["head_dim"] is None:  # then it is not the class's own
        defaults = {key: value for key, value in stack.defaults.items() if key != "head_dim"}
        stack = replace(stack, defaults=defaults)
    check_all_read(given, stack)
    if "rope_ratio" in given:  # ChatGLM's
        if "rope_theta" in given:
            raise ValueError("rope_theta must be absent where there is a rope_ratio, got both")
        given["rope_theta"] = THETA * number(given, ("rope_ratio",))
    if stack.inner is not None and isinstance(given.get(stack.inner), Mapping):
        given = {"rope_theta": given[stack.inner].get("rope_theta"), **given}
        given = _given(given)
    sizes = {**stack.defaults, **given}
    made: dict[Any, LayerSpec] = {}
    layers = []
    for i, kind in enumerate(kinds(sizes, stack)):
        own = of_layer(sizes, i)
        has_rope = turns(sizes, stack, i, kind) and own.get("rope_theta") != 0
        plain = unscaled(given, stack, i, kind)
        key = kind, has_rope, plain, json.dumps(own, sort_keys=True, default=str)
        if key not in made:
            made[key] = _layer(given, own, stack, kind, has_rope=has_rope, plain=plain)
        layers.append(made[key])
    return tuple(layers)


def _layer(
    given: Section, own: Section, stack: Stack, kind: str | None, *, has_rope: bool, plain: bool
) -> LayerSpec:
    """A layer of this kind. own: what the config says of it alone. plain: without the rule."""
    section = {**given, **own}
    theta = own.get("rope_theta")
    if theta is not None:  # a layer's own goes before that of its kind
        del section["rope_theta"]
    for key, instead in stack.of_kind.get(kind or "", {}).items():
        if key not in own:
            section[key] = given.get(instead, stack.defaults[instead])
    if plain:
        section = {k: v for k, v in section.items() if k != "rope_scaling"}
    everything = {**stack.defaults, **section}
    named = stack.named.get(kind, kind) if kind is not None else None
    found = gather(section, named, stack) if has_rope else None
    temperature = _temperature(everything, stack, found)
    if found is None:
        return LayerSpec(None, query_temperature=temperature, kind=kind)
    if theta is not None:
        found["rope_theta"] = theta
    rope = rope_of(everything, stack, found)
    factor = 1.0
    if stack.layout == "latent" and isinstance(rope.scaling, YaRN) and rope.scaling.mscale_all_dim:
        factor = rope.scaling.sharpening(rope.scaling.mscale_all_dim) ** 2  # DeepSeek-V2's
    return LayerSpec(rope, factor, temperature, kind)


def _temperature(section: Section, stack: Stack, found: Fields | None) -> QueryTemperature | None:
    """Llama 4's in layers without rope; Ministral 3's, a field of its rope, in the others."""
    if stack.switched and found is None and section.get("attn_temperature_tuning"):
        scale = section.get("attn_scale", 0.1)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale > 0:
            raise ValueError(f"attn_scale must be a number above 0, got {scale!r}")
        floor = section.get("floor_scale", 8192)
        whole = int(floor) if isinstance(floor, float) and floor.is_integer() else floor
        return QueryTemperature(scale, number({"floor_scale": whole}, ("floor_scale",)), first=1)
    beta = None if found is None else found.get("llama_4_scaling_beta")
    if found is None or not beta:
        return None
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or beta < 0:
        raise ValueError(f"llama_4_scaling_beta must be a number above 0, got {beta!r}")
    return QueryTemperature(beta, number(found, ("original_max_position_embeddings",)))
