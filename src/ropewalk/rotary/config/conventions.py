"""What the code of a family of models does and config.json does not state, as data."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ropewalk.rotary.spec import Pairing

DEFAULT_THETA = 10_000.0
FULL, SLIDING = "full_attention", "sliding_attention"
PAIRING_KEYS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")
#: The key that `ropewalk convert` writes if a checkpoint's weights have another pairing than the
#: code of its model type reads: "half" or "interleaved".
CONVERTED_PAIRING_KEY = "rope_pairing"

#: Where a value of a rope came from, if not from a key of the config.
CLASS_DEFAULT, WHOLE_HEAD = "default of the model's class", "whole head"
MODEL_TYPE = "model_type"  # a table by model type
CLASS_NAME = "_class_name"  # the code of diffusers' class, which each of its configs names
ARGUMENT = "argument"

#: The key that switches Qwen-1's rule on, `QwenNTK`. Its length is `seq_length`.
DOUBLING_KEY = "use_dynamic_ntk"

#: Why xPos is refused.
XPOS = "xPos multiplies queries and keys by powers of their positions, which no rotation does"

USUAL_THETA: Mapping[str, Any] = {"rope_theta": DEFAULT_THETA}
NONE: Mapping[Any, Any] = {}  # nobody writes to it


class IndexerConventions(NamedTuple):
    """The rotation of sparse attention's indexer: the layer's frequencies on heads of its own.

    head_dim_key: the key with the size of its heads. trailing: whether the last dimensions of these
    heads rotate, not the first.
    """

    pairing: Pairing
    write_pairing: Pairing | None = None
    trailing: bool = False
    head_dim_key: str = "index_head_dim"


class LogTemperature(NamedTuple):
    """Queries at position p are multiplied by ln(p + first) / ln(length) where p + first > length.

    length_key: the key of the length; a length of 0 or less switches it off. switch: a key that
    must be true as well.
    """

    length_key: str
    first: int
    switch: str | None = None


class RuleChoice(NamedTuple):
    """Where the rule's dictionary is, if a key of the config chooses one of several (MPT).

    key: the key that chooses; the first of `places` is its default. places: its values, and the
    key of each's dictionary. plain: what these dictionaries call a rope without a rule.
    """

    key: str
    places: Mapping[str, str]
    plain: frozenset[str]


class RopeConventions(NamedTuple):
    """How to read the layers of one stack, and the defaults of their code.

    Which dimensions rotate, and in what order:
    head_layout: which dimensions of a head rotate: the full `head` or its first part, the rope
        part of `latent` attention, `trailing` dimensions, or `axial`, for patches of an image.
    partial_rotary: whether `partial_rotary_factor` is used.
    rotary_dim_key: the key of R itself.
    rounds_head_dim: whether a width that is no multiple of the heads is divided and rounded down.
    axis_order: the order of axes, if positions have several.
    axis_counts: how many axes `mrope_section` may have.
    pairing_key: a key that the model's code reads: true means `interleaved`, false `half` pairs.
    latent_key: a key that the model's code reads: false means full heads in `half` pairs, without
        latent attention (small models of DeepSeek-VL2).

    Where values are:
    defaults: keys of the config, and the defaults of the model's code.
    rope_defaults: the same for fields of the rope.
    required_keys: keys that config.json must have, because the default of the code is not a plain
        rope.
    aliases: keys with another name, and the usual name of each.
    rope_section: the key of a dictionary that has the keys about the rope.
    rule_choice: the key that chooses the dictionary of the rule.
    rope_ratio_key: a key that multiplies the usual theta.
    extra_fields: more fields of the rope that are read elsewhere, or have no effect.
    yarn_fields: fields that the model's code sets itself if the rule is YaRN.
    yarn_ratio: whether its amplitude is m(mscale) / m(mscale_all_dim) even if one is missing: then
        1 and 0, as in DeepSeek's own code.
    rope_names: fields and types of the rope with another name, and the usual name of each.
    only_values: keys that have one of these values, if any: the code was read with no other.
    log_temperature: the temperature of queries that grows with the logarithm of their position.

    Which layer has which type:
    full_attention_interval_key: the key of the distance between layers of full attention. It and
        the next four are used if `layer_types` is absent.
    full_attention_interval: this distance, if no key has it.
    full_attention_at: whether they are the first or the last of each interval.
    full_attention_index_key: a key that lists the layers of full attention.
    other_layer_type: the type of the other layers, for both.
    layer_type_pattern_key: the key of a pattern of types that repeats.
    layer_types_by_ratio: types of layers by the entries of `compress_ratios`.

    What differs between layers:
    nope_layer_types: types of layers without rope.
    reads_no_rope_layers: whether `no_rope_layers` lists the layers without rope.
    rope_switches: keys that must have these values, or there is no rope.
    keys_by_layer_type: keys that a type of layer reads instead of the usual ones.
    unscaled_layer_types: types of layers that legacy `rope_scaling` does not apply to.
    scaled_layers_key: a key that lists the layers that it applies to.
    one_theta: whether `layer_rope_theta` only selects layers, which all rotate by `rope_theta`.
    rope_parameters_by_layer_type: whether `rope_parameters` is required, by types of layers.
    rope_parameters_names: the names of types of layers in `rope_parameters`.
    written_keys: the path in this file of keys with another name or place. Not a fact of the type:
    the reader fills it in.

    The indexer that chooses the keys of sparse attention:
    indexer: how it rotates. None: there is none, or it has no rope.
    indexer_layer_types: types of layers that have one. None: all.
    shares_indexers: whether layers may have none of their own, by `indexer_types` and similar keys.

    code: public code outside transformers in which this was read, as "owner/repository: file".
    """

    head_layout: Literal["head", "latent", "trailing", "axial"] = "head"
    pairing: Pairing = "half"
    write_pairing: Pairing | None = None
    reverse: bool = False
    continuous: bool = False
    partial_rotary: bool = False
    rotary_dim_key: str | None = None
    rounds_head_dim: bool = False
    axis_order: str | None = None
    axis_counts: tuple[int, ...] = (3,)
    pairing_key: str | None = None
    latent_key: str | None = None

    defaults: Mapping[str, Any] = NONE
    rope_defaults: Mapping[str, Any] = USUAL_THETA
    required_keys: tuple[str, ...] = ()
    aliases: Mapping[str, str] = NONE
    rope_section: str | None = None
    rule_choice: RuleChoice | None = None
    rope_ratio_key: str | None = None
    extra_fields: frozenset[str] = frozenset()
    yarn_fields: Mapping[str, Any] = NONE
    yarn_ratio: bool = False
    rope_names: Mapping[str, str] = NONE
    only_values: Mapping[str, tuple[Any, ...]] = NONE
    log_temperature: LogTemperature | None = None

    full_attention_interval_key: str | None = None
    full_attention_interval: int | None = None
    full_attention_at: Literal["first", "last"] = "last"
    full_attention_index_key: str | None = None
    other_layer_type: str = SLIDING
    layer_type_pattern_key: str | None = None
    layer_types_by_ratio: Mapping[int, str] = NONE

    nope_layer_types: frozenset[str] = frozenset()
    reads_no_rope_layers: bool = False
    rope_switches: Mapping[str, Any] = NONE
    keys_by_layer_type: Mapping[str, Mapping[str, str]] = NONE
    unscaled_layer_types: frozenset[str] = frozenset()
    scaled_layers_key: str | None = None
    one_theta: bool = False
    rope_parameters_by_layer_type: bool = False
    rope_parameters_names: Mapping[str, str] = NONE
    written_keys: Mapping[str, str] = NONE

    indexer: IndexerConventions | None = None
    indexer_layer_types: frozenset[str] | None = None
    shares_indexers: bool = False

    code: str | None = None

    @property
    def layers_differ(self) -> bool:
        """Whether types of layers have ropes of their own."""
        differ = self.keys_by_layer_type or self.unscaled_layer_types
        return self.rope_parameters_by_layer_type or bool(differ)
