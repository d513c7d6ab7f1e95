"""Read a model's layers from its config.json, and the origin of each value of a layer's rope.

The origin is a key of config.json, or the code of the model.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple, cast

from ropewalk.checks import shown
from ropewalk.rotary.config.config_json import (
    JsonObject,
    first_present,
    load_config,
    positive_float,
    positive_length,
)
from ropewalk.rotary.config.conventions import (
    ARGUMENT,
    CLASS_DEFAULT,
    CONVERTED_PAIRING_KEY,
    DOUBLING_KEY,
    MODEL_TYPE,
    PAIRING_KEYS,
    WHOLE_HEAD,
    RopeConventions,
)
from ropewalk.rotary.config.diffusers_reader import is_diffusers, read_diffusers
from ropewalk.rotary.config.head_layouts import (
    HEAD_COUNT_KEYS,
    HEAD_DIM_KEYS,
    WIDTH_KEYS,
    indexed_layers,
    read_indexer,
    read_rope,
)
from ropewalk.rotary.config.layer_types import (
    has_rope,
    read_layer_overrides,
    read_layer_types,
    read_own_settings,
    scaled_layers,
)
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.rope_fields import (
    ORIGINAL_LENGTH,
    ROPE_KEYS,
    boolean,
    read_rope_fields,
    rope_dictionary,
)
from ropewalk.rotary.config.sections import (
    find_sections,
    model_type_of,
    normalize_section,
    without_rope,
)
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.rotary.config.unknown_keys import warn_of_other_positions
from ropewalk.rotary.config.unread_types import UNSUPPORTED
from ropewalk.rotary.layer_spec import LayerSpec, QueryTemperature
from ropewalk.rotary.scaling import YaRN
from ropewalk.rotary.spec import Pairing, RotarySpec, check_pairing

# Pairs in all distinct ropes of a model together; published models have at most about 500.
MAX_PAIRS = 12_288


class ModelLayers(NamedTuple):
    """The layers of each stack (text or vision tower) of a config.json, and its model type."""

    stacks: dict[str, tuple[LayerSpec, ...]]
    model_type: str | None


def read_config(
    source: str | PathLike[str] | JsonObject, *, pairing: str | None = None
) -> ModelLayers:
    """Read the layers of each stack of a config.json; see `ModelSpec.from_config`."""
    if pairing is not None:
        check_pairing("pairing", pairing)
    config = load_config(source)
    if is_diffusers(config):
        if pairing is not None:
            raise ValueError(f"pairing must be left out for a model of diffusers, got {pairing!r}")
        return ModelLayers(*read_diffusers(config))
    model_type = model_type_of(config)
    known = {*CONVENTIONS, *MULTIMODAL_MODELS, *UNSUPPORTED}
    if pairing is not None and (model_type not in known or without_rope(config, model_type)):
        warn_of_other_positions(config)
        conventions = RopeConventions(
            pairing=cast(Pairing, pairing), rope_defaults={}, partial_rotary=True
        )
        layers = read_layers(config, conventions, stated_pairing=True)
        return ModelLayers({"text": layers}, model_type)
    raw_sections = find_sections(config, model_type)
    for raw_section, _ in raw_sections.values():
        warn_of_other_positions(raw_section)
    stacks = {
        stack: read_layers(raw_section, conventions, most_pairs=MAX_PAIRS // len(raw_sections))
        for stack, (raw_section, conventions) in raw_sections.items()
    }
    usual = {layer.rope.pairing for layer in stacks.get("text", ()) if layer.rope is not None}
    if pairing is not None and usual and usual != {pairing}:
        raise ValueError(
            f"pairing must agree with model_type {shown(model_type)}, which has "
            f"{' and '.join(map(repr, sorted(usual)))}, got {pairing!r}; leave it out or, if "
            f"weights were permuted, set {CONVERTED_PAIRING_KEY} in the config"
        )
    if model_type not in {*MULTIMODAL_MODELS, *CONVENTIONS} and "text" in raw_sections:
        # In LLaVA and similar models, the type of the language model.
        model_type = raw_sections["text"][0]["model_type"]
    return ModelLayers(stacks, model_type)


def read_layers(
    raw_section: JsonObject,
    conventions: RopeConventions,
    *,
    most_pairs: int = MAX_PAIRS,
    stated_pairing: bool = False,
) -> tuple[LayerSpec, ...]:
    """Return one `LayerSpec` for each layer of a stack; equal layers share one object."""
    section, conventions = normalize_section(raw_section, conventions)
    defaults = dict(conventions.defaults)
    settings = ChainMap(section, defaults)
    layer_types = read_layer_types(settings, conventions)
    own_settings = read_own_settings(settings, len(layer_types))
    scaled = scaled_layers(settings, conventions, layer_types)
    shared: dict[tuple[str | None, bool, bool, str], LayerSpec] = {}
    layers, pairs = [], 0
    indexed = indexed_layers(settings, conventions, layer_types)
    for layer, layer_type in enumerate(layer_types):
        own = own_settings.get(layer, {})
        overrides = read_layer_overrides(
            settings, conventions, own, layer_type, scaled=layer in scaled
        )
        layer_config = ChainMap(overrides, section, defaults)
        rotates = has_rope(layer_config, conventions, layer, layer_type)
        same_rope = layer_type, rotates, indexed[layer], repr(sorted(overrides.items(), key=str))
        if same_rope not in shared:
            spec = _layer_spec(
                layer_config, conventions, layer_type, rotates=rotates, indexed=indexed[layer]
            )
            if spec.rope is not None:
                sources = LayerSources(section, own, layer_config, conventions, layer_type)
                origins = sources.origins()
                if stated_pairing:
                    origins["pairing"] = ARGUMENT
                spec = replace(spec, origins=origins)
            pairs += 0 if spec.rope is None else spec.rope.pairs
            if pairs > most_pairs:
                raise ValueError(
                    f"the different ropes of all layers must have at most {most_pairs:,} pairs in "
                    f"total, got more in layers 0 to {layer}; see per_layer_config and similar keys"
                )
            shared[same_rope] = spec
        layers.append(shared[same_rope])
    return tuple(layers)


def _layer_spec(
    layer_config: JsonObject,
    conventions: RopeConventions,
    layer_type: str | None,
    *,
    rotates: bool,
    indexed: bool,
) -> LayerSpec:
    rope_fields = read_rope_fields(layer_config, conventions, layer_type) if rotates else None
    if rope_fields is None:
        temperature = _temperature_without_rope(layer_config, conventions)
        return LayerSpec(None, query_temperature=temperature, layer_type=layer_type)
    temperature = _temperature_of_rope(rope_fields) or _log_temperature(layer_config, conventions)
    rope = read_rope(layer_config, conventions, rope_fields)
    indexer = read_indexer(layer_config, conventions, rope) if indexed else None
    return LayerSpec(rope, softmax_factor(rope, conventions), temperature, layer_type, indexer)


def softmax_factor(rope: RotarySpec, conventions: RopeConventions) -> float:
    """Return the factor by which DeepSeek-V2 multiplies scores; only YaRN has one."""
    rule = rope.scaling
    if conventions.head_layout == "latent" and isinstance(rule, YaRN) and rule.mscale_all_dim:
        return rule.sharpening(rule.mscale_all_dim) ** 2
    return 1.0


def _temperature_without_rope(
    layer_config: JsonObject, conventions: RopeConventions
) -> QueryTemperature | None:
    """Return Llama 4's query temperature, which only layers without a rope have."""
    if not conventions.reads_no_rope_layers or not layer_config.get("attn_temperature_tuning"):
        return None
    beta = positive_float("attn_scale", layer_config.get("attn_scale", 0.1))
    length = positive_length("floor_scale", layer_config.get("floor_scale", 8192))
    return QueryTemperature(beta, length, first=1)


def _temperature_of_rope(rope_fields: JsonObject) -> QueryTemperature | None:
    """Return Ministral 3's query temperature, which is a field of its rope."""
    beta = rope_fields.get("llama_4_scaling_beta")
    if not beta:
        return None
    if ORIGINAL_LENGTH not in rope_fields:
        raise ValueError(f"{ORIGINAL_LENGTH} must be given with llama_4_scaling_beta, got none")
    return QueryTemperature(
        positive_float("llama_4_scaling_beta", beta),
        positive_length(ORIGINAL_LENGTH, rope_fields[ORIGINAL_LENGTH]),
    )


def _log_temperature(
    layer_config: JsonObject, conventions: RopeConventions
) -> QueryTemperature | None:
    """Return the query temperature of Qwen-1 and Grok-2."""
    keys = conventions.log_temperature
    if keys is None or (keys.switch is not None and not boolean(layer_config, keys.switch)):
        return None
    length = layer_config.get(keys.length_key)
    if keys.switch is None and (length is None or (isinstance(length, int) and length <= 0)):
        return None
    return QueryTemperature.logarithmic(positive_length(keys.length_key, length, 2), keys.first)


class LayerSources(NamedTuple):
    """The settings of one layer, by their source, and how they are read.

    section: the stack's section. own: the layer's entry in `per_layer_config`. layer_config: all
    settings of the layer, including the defaults of the model's class.
    """

    section: JsonObject
    own: Mapping[str, Any]
    layer_config: JsonObject
    conventions: RopeConventions
    layer_type: str | None

    def origins(self) -> dict[str, str]:
        """Return where the fields of the layer's rope came from, by the names of `RotarySpec`.

        Each is a key ("rope_theta", "rope_parameters.full_attention.rope_theta",
        "hidden_size / num_attention_heads"), "model_type", "whole head", or `CLASS_DEFAULT`.
        """
        written, place = rope_dictionary(self.layer_config, self.conventions, self.layer_type)
        place = self.conventions.written_keys.get(place, place)
        inside = {} if written is None else written
        has_type = any(inside.get(key) is not None for key in ("rope_type", "type"))
        doubles = DOUBLING_KEY in self.conventions.extra_fields & self.section.keys()
        stated_pairing = first_present(self.section, (CONVERTED_PAIRING_KEY, *PAIRING_KEYS))
        return {
            "head_dim": self._head_dim(),
            "rotary_dim": self._rotary_dim(inside, place),
            "theta": self._theta(inside, place),
            "pairing": stated_pairing or MODEL_TYPE,
            "scaling": place if has_type else DOUBLING_KEY if doubles else CLASS_DEFAULT,
        }

    def _key(self, key: str) -> str:
        """Return the key of this setting in config.json, or `CLASS_DEFAULT`."""
        if key in self.own:
            return f"per_layer_config.{key}"
        of_type = self.conventions.keys_by_layer_type.get(self.layer_type or "", {}).get(key, key)
        written = self.conventions.written_keys.get(of_type, of_type)
        return written if of_type in self.section else CLASS_DEFAULT

    def _outer_key(self, field: str) -> str | None:
        """Return the key next to the rope's dictionary that has this field, or None."""
        for key, named in ROPE_KEYS.items():
            if named == field and self.layer_config.get(key) is not None:
                return self._key(key)
        return None

    def _theta(self, inside: JsonObject, place: str) -> str:
        if self.layer_config.get("layer_rope_theta") is not None:
            by_list = "layer_rope_theta" in self.section
            return "layer_rope_theta" if by_list else "per_layer_config.rope_theta"
        if inside.get("rope_theta") is not None:
            return f"{place}.rope_theta"
        ratio_key = self.conventions.rope_ratio_key
        if ratio_key is not None and ratio_key in self.section:
            return ratio_key
        return self._outer_key("rope_theta") or CLASS_DEFAULT

    def _rotary_dim(self, inside: JsonObject, place: str) -> str:
        if self.conventions.head_layout in ("latent", "trailing"):
            return self._key("qk_rope_head_dim")
        key = self.conventions.rotary_dim_key
        if key is not None and key in self.section:
            return key
        if not self.conventions.partial_rotary:
            return WHOLE_HEAD
        if inside.get("partial_rotary_factor") is not None:
            return f"{place}.partial_rotary_factor"
        has_default = "partial_rotary_factor" in self.conventions.rope_defaults
        default = CLASS_DEFAULT if has_default else WHOLE_HEAD
        return self._outer_key("partial_rotary_factor") or default

    def _head_dim(self) -> str:
        if self.conventions.head_layout == "latent":
            return "qk_nope_head_dim + qk_rope_head_dim"
        stated = first_present(self.layer_config, HEAD_DIM_KEYS)
        if stated is not None:
            return self._key(stated)
        parts = [first_present(self.layer_config, keys) for keys in (WIDTH_KEYS, HEAD_COUNT_KEYS)]
        named = [self._key(str(part)) for part in parts]
        return CLASS_DEFAULT if set(named) == {CLASS_DEFAULT} else " / ".join(named)
