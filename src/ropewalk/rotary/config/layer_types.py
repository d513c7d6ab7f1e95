"""The type of each layer of a stack, whether it has a rope, and the settings of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary.config.config_json import JsonObject, as_list, first_present, positive_int
from ropewalk.rotary.config.conventions import FULL, RopeConventions

LAYER_COUNT_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
LAYER_TYPES_KEYS = ("layer_types", "layers_block_type")
MAX_LAYERS = 1_000  # the deepest published models have some 130

ATTENTION_TYPES = {
    "full_attention", "sliding_attention", "chunked_attention", "window_attention",
    "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention",
    "minimax_m3_sparse", "hybrid", "hybrid_sliding", "reference_sliding_attention",
}  # fmt: skip
OTHER_TYPES = {"conv", "linear_attention", "moe", "mlp", "sparse", "dense"}
EARLIER_LAYER_TYPES = {
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "recurrent": "linear_attention",
}
# The keys that switch ropes on or off, and their possible values.
SWITCH_VALUES: dict[str, tuple[Any, ...]] = {
    "alibi": (True, False),
    "use_mem_rope": (True, False),
    "position_embedding_type": ("rotary", "rope", "nope", "absolute", "relative_key"),
    "position_embeddings_type": ("rotary", "relative", "relative_key"),
    "rope": (True, False),
    "nope": (True, False),
    "hidden_size": (4096,),  # Baichuan's
}


def read_layer_types(settings: JsonObject, conventions: RopeConventions) -> list[str | None]:
    """Return the type of each layer, None for all if layers have no types."""
    count = positive_int(settings, *LAYER_COUNT_KEYS, most=MAX_LAYERS)
    types_key = first_present(settings, LAYER_TYPES_KEYS)
    if types_key is not None:
        return _known_types(types_key, settings[types_key], count)
    if conventions.layer_types_by_ratio and "compress_ratios" in settings:
        return _types_by_ratio(settings["compress_ratios"], conventions, count)
    index_key = conventions.full_attention_index_key
    if index_key is not None and index_key in settings:
        full = layer_indices(index_key, settings[index_key], count)
        return [FULL if i in full else conventions.other_layer_type for i in range(count)]
    pattern_key = conventions.layer_type_pattern_key
    if pattern_key is not None and pattern_key in settings:
        pattern = as_list(pattern_key, settings[pattern_key])
        repeated = [pattern[i % len(pattern)] for i in range(count)] if pattern else []
        return _known_types(pattern_key, repeated, count)
    interval = conventions.full_attention_interval
    if conventions.full_attention_interval_key is not None:
        interval = positive_int(settings, conventions.full_attention_interval_key)
    if interval is not None:
        full_at = 0 if conventions.full_attention_at == "first" else interval - 1
        other = conventions.other_layer_type
        return [FULL if i % interval == full_at else other for i in range(count)]
    if conventions.layers_differ or conventions.nope_layer_types:
        raise ValueError("layer_types must be given, since this model's layers differ, got none")
    return [None] * count


def _known_types(key: str, value: object, count: int) -> list[str | None]:
    """Return the types that this value lists, by today's names."""
    names = as_list(key, value)
    if len(names) != count:
        raise ValueError(f"{key} must name each of {count} layers, got {len(names)}")
    layer_types: list[str | None] = []
    for i, name in enumerate(names):
        layer_type = EARLIER_LAYER_TYPES.get(name, name) if isinstance(name, str) else None
        if layer_type not in ATTENTION_TYPES | OTHER_TYPES:
            known = sorted(ATTENTION_TYPES | OTHER_TYPES)
            raise ValueError(
                f"{key}[{i}] must be a known type of layer, got {shown(name)}"
                + (did_you_mean(str(name)[:80], known) or f"; they are {', '.join(known)}")
            )
        layer_types.append(layer_type)
    return layer_types


def _types_by_ratio(value: object, conventions: RopeConventions, count: int) -> list[str | None]:
    """Return DeepSeek-V4's types; entries beyond the layers are for its extra prediction layers."""
    ratios = as_list("compress_ratios", value)
    by_ratio = conventions.layer_types_by_ratio
    if len(ratios) < count:
        raise ValueError(
            f"compress_ratios must have one for each of {count} layers, got {shown(ratios)}"
        )
    for ratio in ratios[:count]:
        if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio not in by_ratio:
            raise ValueError(
                f"compress_ratios must be from {', '.join(map(str, by_ratio))}, got {shown(ratio)}"
            )
    return [by_ratio[ratio] for ratio in ratios[:count]]


def layer_indices(key: str, value: object, count: int) -> Collection[int]:
    """Return the layers that this value lists, each one of 0 to count - 1."""
    indices = as_list(key, value)
    if len(indices) > count:
        raise ValueError(f"{key} must list each of {count} layers once, got {len(indices)}")
    for i in indices:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count:
            raise ValueError(f"{key} must have layers 0..{count - 1}, got {shown(i)}")
    return frozenset(indices)


def has_rope(
    layer_config: JsonObject, conventions: RopeConventions, layer: int, layer_type: str | None
) -> bool:
    """Return whether this layer has a rope, by its type and by the keys that switch ropes off."""
    if layer_type in OTHER_TYPES or layer_type in conventions.nope_layer_types:
        return False
    if layer_config.get("layer_rope_theta") == 0:
        return False
    for key, value in conventions.rope_switches.items():
        if layer_config[key] not in SWITCH_VALUES[key]:
            raise ValueError(
                f"{key} must be one of {SWITCH_VALUES[key]}, got {shown(layer_config[key])}"
            )
        if layer_config[key] != value:
            return False
    if not conventions.reads_no_rope_layers:
        return True
    if layer_config.get("no_rope_layers"):
        switch = entry_of_layer(layer_config, "no_rope_layers", layer)
        if switch not in (0, 1):
            raise ValueError(f"no_rope_layers must have 1 (rope) or 0 (none), got {shown(switch)}")
        return bool(switch)
    key = "no_rope_layer_interval"
    interval = positive_int(layer_config, key) if key in layer_config else 4
    return (layer + 1) % interval != 0


def entry_of_layer(settings: JsonObject, key: str, layer: int) -> Any:
    """Return this layer's entry of a list that has one for each layer."""
    entries = as_list(key, settings[key])
    count = positive_int(settings, *LAYER_COUNT_KEYS, most=MAX_LAYERS)
    if len(entries) != count:
        raise ValueError(f"{key} must have one for each of {count} layers, got {len(entries)}")
    return entries[layer]


OwnSettings = Mapping[int, dict[str, Any]]


def read_own_settings(settings: JsonObject, count: int) -> OwnSettings:
    """Return the settings that `per_layer_config` and `layer_rope_theta` have, by layer."""
    own_settings: dict[int, dict[str, Any]] = {}
    layers = settings.get("per_layer_config", {})
    if not isinstance(layers, Mapping):
        raise ValueError(f"per_layer_config must be a dictionary by layers, got {shown(layers)}")
    for index, values in layers.items():
        number = str(index)[:10]
        if not (number.isdecimal() and number.isascii()) or not isinstance(values, Mapping):
            raise ValueError(
                f"per_layer_config must have a dictionary for each layer, "
                f"got {shown(values)} for {shown(index)}"
            )
        own = {key: value for key, value in values.items() if value is not None}
        own_settings.setdefault(int(number), {}).update(own)
    if "layer_rope_theta" in settings:
        for layer in range(count):
            theta = entry_of_layer(settings, "layer_rope_theta", layer)
            own_settings.setdefault(layer, {})["rope_theta"] = theta
    return own_settings


def scaled_layers(
    settings: JsonObject, conventions: RopeConventions, layer_types: list[str | None]
) -> Collection[int]:
    """Return the layers that legacy `rope_scaling` applies to, by a list or else by type."""
    key = conventions.scaled_layers_key
    if key is not None and key in settings:
        return layer_indices(key, settings[key], len(layer_types))
    unscaled = conventions.unscaled_layer_types
    return {i for i, layer_type in enumerate(layer_types) if layer_type not in unscaled}


def read_layer_overrides(
    settings: JsonObject,
    conventions: RopeConventions,
    own_settings: dict[str, Any],
    layer_type: str | None,
    *,
    scaled: bool,
) -> dict[str, Any]:
    """Return the settings in which this layer differs; None removes a setting.

    `layer_rope_theta` is the theta that the config has for this one layer. It overrides that of the
    layer's type; 0 means that the layer has no rope.
    """
    overrides = dict(own_settings)
    overrides["layer_rope_theta"] = overrides.pop("rope_theta", None)
    if "rope_theta" in own_settings and not conventions.one_theta:
        overrides["rope_theta"] = None
    for key, key_of_type in conventions.keys_by_layer_type.get(layer_type or "", {}).items():
        if key not in own_settings:
            overrides[key] = settings[key_of_type]
    if not scaled:
        overrides["rope_scaling"] = None
    return overrides
