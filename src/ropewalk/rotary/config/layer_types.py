"""Of what type each layer of a config.json is, and which of them have a rope."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ropewalk.rotary.config.conventions import FULL, Stack
from ropewalk.rotary.config.fields import LARGEST

Section = Mapping[str, Any]

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
TYPES = ("layer_types", "layers_block_type")
WITH_ATTENTION = {
    "full_attention", "sliding_attention", "chunked_attention", "window_attention",
    "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention",
    "minimax_m3_sparse", "hybrid", "hybrid_sliding", "reference_sliding_attention",
}  # fmt: skip
NO_ATTENTION = {"conv", "linear_attention", "moe", "mlp", "sparse", "dense"}
# The keys that say whether there is a rope at all, and what they may say.
SWITCHES: dict[str, tuple[Any, ...]] = {
    "alibi": (True, False),
    "use_mem_rope": (True, False),
    "position_embedding_type": ("rotary", "rope", "nope", "absolute", "relative_key"),
    "position_embeddings_type": ("rotary", "relative", "relative_key"),
}
# What types were called earlier.
EARLIER = {
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "recurrent": "linear_attention",
}


def kinds(section: Section, stack: Stack) -> list[str | None]:
    """The type of each layer, where layers have types."""
    count = number(section, LAYERS)
    if count > 10_000:
        raise ValueError(f"{_present(section, LAYERS)} must be at most 10,000, got {count}")
    given = _present(section, TYPES)
    if given is not None:
        return _named(given, section[given], count)
    if stack.ratios and "compress_ratios" in section:
        return _by_ratio(section["compress_ratios"], stack, count)
    if stack.listed is not None and stack.listed[0] in section:
        return _listed(*stack.listed, section[stack.listed[0]], count)
    if stack.cycle is not None and stack.cycle in section:
        cycle = _list(stack.cycle, section[stack.cycle])
        return _named(stack.cycle, (cycle * count)[:count] if cycle else [], count)
    if stack.full_every is not None:
        key, place, others = stack.full_every
        every = number(section, (key,))
        at = 0 if place == "first" else every - 1
        return [FULL if i % every == at else others for i in range(count)]
    if stack.nested or stack.of_kind or stack.unturned or stack.unscaled:
        raise ValueError("layer_types must be given, for this model's layers differ, got none")
    return [None] * count


def _list(key: str, given: object) -> list[Any]:
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"{key} must be a list, got {given!r}")
    return list(given)


def _named(key: str, given: object, count: int) -> list[str | None]:
    given = _list(key, given)
    if len(given) != count:
        raise ValueError(f"{key} must name each of {count} layers, got {len(given)}")
    found: list[str | None] = []
    for i, name in enumerate(given):
        kind = EARLIER.get(name, name) if isinstance(name, str) else None
        if kind not in WITH_ATTENTION | NO_ATTENTION:
            known = sorted(WITH_ATTENTION | NO_ATTENTION)
            near = difflib.get_close_matches(str(name), known, n=1)
            raise ValueError(
                f"{key}[{i}] must be a type of layer that is known, got {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; they are {', '.join(known)}")
            )
        found.append(kind)
    return found


def _by_ratio(given: object, stack: Stack, count: int) -> list[str | None]:
    """DeepSeek-V4's; entries beyond the layers are those of its extra prediction layers."""
    given = _list("compress_ratios", given)
    if len(given) < count:
        raise ValueError(f"compress_ratios must hold one for each of {count} layers, got {given!r}")
    for ratio in given[:count]:
        if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio not in stack.ratios:
            raise ValueError(
                f"compress_ratios must be of {', '.join(map(str, stack.ratios))}, got {ratio!r}"
            )
    return [stack.ratios[ratio] for ratio in given[:count]]


def _listed(key: str, others: str, given: object, count: int) -> list[str | None]:
    given = _list(key, given)
    for i in given:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count:
            raise ValueError(f"{key} must hold layers 0..{count - 1}, got {i!r}")
    return [FULL if i in given else others for i in range(count)]


def of_layer(section: Section, layer: int) -> dict[str, Any]:
    """What the config says of this layer alone; a theta of 0 says that it has no rope."""
    own: dict[str, Any] = {}
    layers = section.get("per_layer_config", {})
    if not isinstance(layers, Mapping):
        raise ValueError(f"per_layer_config must be a dictionary by layers, got {layers!r}")
    for key, value in layers.items():
        if not str(key).isdecimal() or not isinstance(value, Mapping):
            raise ValueError(
                f"per_layer_config must hold a dictionary for each layer, got {value!r} for {key!r}"
            )
        if int(key) == layer:
            own |= {k: v for k, v in value.items() if v is not None}
    if "layer_rope_theta" in section:
        own["rope_theta"] = _at(section, "layer_rope_theta", layer)
    return own


def _at(section: Section, key: str, layer: int) -> Any:
    """The entry for this layer of a list that has one for each."""
    given, count = _list(key, section[key]), number(section, LAYERS)
    if len(given) != count:
        raise ValueError(f"{key} must hold one for each of {count} layers, got {len(given)}")
    return given[layer]


def turns(section: Section, stack: Stack, layer: int, kind: str | None) -> bool:
    """Whether this layer has a rope."""
    if kind in NO_ATTENTION or kind in stack.unturned:
        return False
    for key, value in stack.only_if.items():
        if section[key] not in SWITCHES[key]:
            raise ValueError(f"{key} must be one of {SWITCHES[key]}, got {section[key]!r}")
        if section[key] != value:
            return False
    if not stack.switched:
        return True
    if section.get("no_rope_layers"):
        on = _at(section, "no_rope_layers", layer)
        if on not in (0, 1):
            raise ValueError(f"no_rope_layers must hold 1 (rope) or 0 (none), got {on!r}")
        return bool(on)
    every = number({"no_rope_layer_interval": 4, **section}, ("no_rope_layer_interval",))
    return (layer + 1) % every != 0


def unscaled(section: Section, stack: Stack, layer: int, kind: str | None) -> bool:
    """Whether the rule of `rope_scaling` leaves this layer alone."""
    if stack.scaled is not None and stack.scaled in section:
        return layer not in _list(stack.scaled, section[stack.scaled])
    return kind in stack.unscaled


def number(section: Section, keys: tuple[str, ...]) -> int:
    """The first of these keys that is there, a whole number above 0."""
    key = _present(section, keys)
    if key is None:
        others = f", got none of {', '.join(keys)}" if len(keys) > 1 else ""
        raise ValueError(f"{keys[0]} must be given{others}")
    value = section[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} must be an integer above 0, got {value!r}")
    if value > LARGEST:
        raise ValueError(f"{key} must be at most {LARGEST:,}, got {value}")
    return value


def _present(section: Section, keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if section.get(key) is not None), None)
