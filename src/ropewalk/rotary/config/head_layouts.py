"""The dimensions of a head that rotate, and their axes, for each layout that models have.

Also of the heads of an indexer, which chooses keys in sparse attention (DeepSeek-V3.2 and similar).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ropewalk.checks import shown
from ropewalk.rotary import axes
from ropewalk.rotary.config.config_json import JsonObject, as_list, first_present, positive_int
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.rope_fields import INTERLEAVED_AXES_FIELDS, read_scaling
from ropewalk.rotary.scaling import Proportional, Scaling
from ropewalk.rotary.spec import MAX_HEAD_DIM, Axes, RotarySpec

HEAD_DIM_KEYS = ("head_dim", "attention_head_dim", "kv_channels")
WIDTH_KEYS = ("embed_dim", "hidden_size", "n_embd", "d_model", "dim")
HEAD_COUNT_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")


def read_rope(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> RotarySpec:
    """Return the rope that these fields describe, by the layout of its family."""
    return READERS_BY_LAYOUT[conventions.head_layout](layer_config, conventions, rope_fields)


def _head(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> RotarySpec:
    """Return a rope on a head's leading dimensions, or on all."""
    head_dim = _head_dim(layer_config, conventions)
    if layer_config.get("qk_rope_head_dim"):  # without latent attention, some files have 0
        raise ValueError(
            f"qk_rope_head_dim must belong to a model type with latent attention, as deepseek_v3 "
            f"is; the code of this one rotates the leading dimensions of heads, "
            f"got {shown(layer_config['qk_rope_head_dim'])}"
        )
    scaling = read_scaling(layer_config, conventions, rope_fields)
    rotary_dim = _rotary_dim(layer_config, conventions, rope_fields, scaling, head_dim)
    pair_axes = _mrope_axes(conventions, rope_fields, rotary_dim)
    return _spec(conventions, rope_fields, scaling, head_dim, rotary_dim, pair_axes=pair_axes)


def _rotary_dim(
    layer_config: JsonObject,
    conventions: RopeConventions,
    rope_fields: JsonObject,
    scaling: Scaling | None,
    head_dim: int,
) -> int:
    """Return R, from the part of the head that rotates or from a key for R."""
    part = rope_fields.get("partial_rotary_factor", 1.0)
    if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part <= 1:
        raise ValueError(f"partial_rotary_factor must be above 0 and at most 1, got {shown(part)}")
    if isinstance(scaling, Proportional):  # there it is a field of the rule
        part = 1.0
    elif part != 1.0 and not conventions.partial_rotary:
        raise ValueError(
            f"partial_rotary_factor must be 1 or absent, as the code of this model type rotates "
            f"full heads, got {shown(part)}"
        )
    rotary_dim = int(head_dim * part)
    key = conventions.rotary_dim_key
    if key is not None and key in layer_config:
        rotary_dim = positive_int(layer_config, key, most=MAX_HEAD_DIM)
        if rotary_dim > head_dim:
            raise ValueError(f"{key} must be at most head_dim={head_dim}, got {rotary_dim}")
        if "partial_rotary_factor" in rope_fields and int(head_dim * part) != rotary_dim:
            raise ValueError(
                f"{key} must be the part of head_dim={head_dim} that partial_rotary_factor gives, "
                f"{int(head_dim * part)}, got {rotary_dim}; remove one of them"
            )
    elif layer_config.get("rotary_dim", rotary_dim) != rotary_dim:
        raise ValueError(
            f"rotary_dim must be absent or {rotary_dim}, as partial_rotary_factor gives, "
            f"got {shown(layer_config['rotary_dim'])}"
        )
    return rotary_dim


def _check_part(
    layer_config: JsonObject, rope_fields: JsonObject, head_dim: int, rotary_dim: int
) -> None:
    """Raise if `partial_rotary_factor` gives another R than the sizes; 1 is always accepted.

    In Mistral 4 it is a part of the full head, in dots3.note a part of `head_dim`, which is another
    size. In DeepSeek's code it is a part of the dimensions that rotate, so it is 1.
    """
    part = rope_fields.get("partial_rotary_factor", 1.0)
    stated = layer_config.get("head_dim")
    sizes = [head_dim, stated] if isinstance(stated, int) else [head_dim]
    if part != 1 and not any(size * part == rotary_dim for size in sizes):
        raise ValueError(
            f"partial_rotary_factor must be absent, or qk_rope_head_dim over the head's size, "
            f"{rotary_dim}/{head_dim}, got {shown(part)}"
        )


def _last_part(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> RotarySpec:
    """Return a rope on a head's last dimensions (multi-head latent attention, DeepSeek-V4)."""
    latent = conventions.head_layout == "latent"
    if latent:  # its configs have the size of the part that does not rotate, not of the head
        head_dim = positive_int(layer_config, "qk_nope_head_dim", most=MAX_HEAD_DIM)
    else:
        head_dim = _head_dim(layer_config, conventions)
    rotary_dim = positive_int(layer_config, "qk_rope_head_dim", most=MAX_HEAD_DIM)
    head_dim += rotary_dim if latent else 0
    _check_one_axis(rope_fields)
    if rotary_dim > head_dim:
        raise ValueError(f"qk_rope_head_dim must be at most head_dim={head_dim}, got {rotary_dim}")
    _check_part(layer_config, rope_fields, head_dim, rotary_dim)
    scaling = read_scaling(layer_config, conventions, rope_fields)
    return _spec(conventions, rope_fields, scaling, head_dim, rotary_dim, head_dim - rotary_dim)


def _axial(
    layer_config: JsonObject, conventions: RopeConventions, rope_fields: JsonObject
) -> RotarySpec:
    """Return the rope of image patches: height and width have all frequencies of half a head."""
    head_dim, order = _head_dim(layer_config, conventions), conventions.axis_order
    if head_dim % 4 and order != "time too":
        raise ValueError(f"head_dim must be a multiple of 4, for two axes, got {head_dim}")
    if head_dim < 6:
        raise ValueError(f"head_dim must be at least 6, a pair for each axis, got {head_dim}")
    pairs = head_dim // 4
    pair_axes = {
        "axial": lambda: axes.axial((pairs, pairs)),
        "width first": lambda: axes.axial((pairs, pairs), order=(1, 0)),
        "pixtral": lambda: axes.pixtral(head_dim),
        "alternating": lambda: axes.alternating(pairs),
        "width first, alternating": lambda: axes.alternating(pairs, order=(1, 0)),
        "blocks": lambda: axes.axial((pairs, pairs)),
        "time too": lambda: axes.axial((head_dim // 6,) * 3),
    }[order or "axial"]()
    blocks = (head_dim // 2, head_dim // 2) if order == "blocks" else None
    scaling = read_scaling(layer_config, conventions, rope_fields)
    rotary_dim = 2 * len(pair_axes)
    return _spec(
        conventions, rope_fields, scaling, head_dim, rotary_dim, pair_axes=pair_axes, blocks=blocks
    )


READERS_BY_LAYOUT = {
    "head": _head,
    "latent": _last_part,
    "trailing": _last_part,
    "axial": _axial,
}


def _spec(
    conventions: RopeConventions,
    rope_fields: JsonObject,
    scaling: Scaling | None,
    head_dim: int,
    rotary_dim: int,
    start: int = 0,
    pair_axes: Axes | None = None,
    blocks: tuple[int, ...] | None = None,
) -> RotarySpec:
    if "rope_theta" not in rope_fields:
        raise ValueError("rope_theta must be given, got none")
    if rotary_dim < 2:
        raise ValueError(
            f"partial_rotary_factor must leave at least 2 of head_dim={head_dim} dimensions to "
            f"rotate, got {shown(rope_fields.get('partial_rotary_factor'))}"
        )
    if rotary_dim % 2 and pair_axes is not None:
        raise ValueError(
            f"partial_rotary_factor must leave an even number of head_dim={head_dim} dimensions to "
            f"rotate, got {rotary_dim}"
        )
    if rotary_dim % 2:  # GLM-4.5 shrunk: 21 of 42 dimensions make 11 pairs
        if rotary_dim == head_dim:
            raise ValueError(f"head_dim must be even if all of it rotates, got {head_dim}")
        pair_axes = tuple((0, Fraction(2 * i, rotary_dim)) for i in range((rotary_dim + 1) // 2))
        rotary_dim += 1
    return RotarySpec(
        head_dim,
        rotary_dim=rotary_dim,
        theta=rope_fields["rope_theta"],
        pairing=conventions.pairing,
        write_pairing=conventions.write_pairing,
        start=start,
        scaling=scaling,
        reverse=conventions.reverse,
        axes=pair_axes,
        blocks=blocks,
        continuous=conventions.continuous,
    )


def _check_one_axis(rope_fields: JsonObject) -> None:
    """Raise if the fields are those of several axes, and the model has one."""
    for name in ("mrope_section", *INTERLEAVED_AXES_FIELDS):
        if rope_fields.get(name):
            raise ValueError(
                f"{name} must be absent, as this model's positions have one axis, "
                f"got {shown(rope_fields[name])}"
            )
    if rope_fields["rope_type"] == "mrope":
        raise ValueError(
            "rope_type must not be 'mrope' here, as this model's positions have one axis"
        )


def _mrope_axes(
    conventions: RopeConventions, rope_fields: JsonObject, rotary_dim: int
) -> Axes | None:
    """Return M-RoPE's axes in this family's order, or None if positions have one axis."""
    order, pairs = conventions.axis_order, rotary_dim // 2
    if order is None:
        _check_one_axis(rope_fields)
        return None
    interleaved = order == "interleaved"
    for name in INTERLEAVED_AXES_FIELDS:
        if rope_fields.get(name, interleaved) is not interleaved:
            raise ValueError(
                f"{name} must be {str(interleaved).lower()} or absent for this model, "
                f"got {shown(rope_fields[name])}"
            )
    if order == "round robin":
        return axes.round_robin(pairs)
    sections = rope_fields.get("mrope_section")
    counts = conventions.axis_counts
    if not isinstance(sections, (list, tuple)) or len(sections) not in counts:
        numbers = "three numbers of pairs, for time, height and width"
        if counts != (3,):
            numbers = f"{' or '.join(map(str, counts))} numbers of pairs, one for each axis"
        raise ValueError(f"mrope_section must have {numbers}, got {shown(sections)}")
    for count in sections:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"mrope_section must have integers above 0, got {shown(sections)}")
    # Small versions of models have the sections of the large one, which their code truncates.
    if sum(sections) != pairs and sections != conventions.rope_defaults.get("mrope_section"):
        raise ValueError(
            f"mrope_section must sum to the {pairs} pairs of {rotary_dim} dimensions, "
            f"got {shown(list(sections))}, which sum to {shown(sum(sections))}"
        )
    if order == "ernie" and sections[0] != sections[1]:
        raise ValueError(
            f"mrope_section must be height, width and time, the first two equal, "
            f"got {shown(list(sections))}"
        )
    if interleaved:
        return axes.interleaved(sections, pairs)
    return {"sectioned": axes.sectioned, "ernie": axes.ernie}[order](sections)


def _head_dim(layer_config: JsonObject, conventions: RopeConventions) -> int:
    """Return D: its own key, or the width over the number of heads."""
    given = [key for key in HEAD_DIM_KEYS if key in layer_config]
    sizes = {key: positive_int(layer_config, key, most=MAX_HEAD_DIM) for key in given}
    if len({sizes[key] for key in HEAD_DIM_KEYS[:2] if key in sizes}) > 1:
        raise ValueError(f"head_dim and attention_head_dim must be the same, got {sizes}")
    if sizes:
        return sizes[given[0]]
    width = positive_int(layer_config, *WIDTH_KEYS)
    heads = positive_int(layer_config, *HEAD_COUNT_KEYS)
    if width % heads and not conventions.rounds_head_dim:
        raise ValueError(
            f"{first_present(layer_config, WIDTH_KEYS)} must be a multiple of the {heads} heads, "
            f"or head_dim be given, got {width:,}"
        )
    head_dim = width // heads
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"{first_present(layer_config, WIDTH_KEYS)} must give heads of at most "
            f"{MAX_HEAD_DIM:,} dimensions, got {width:,} for {heads} of them"
        )
    return head_dim


INDEXER_TYPES = {"full": True, "F": True, "shared": False, "S": False}


def indexed_layers(
    settings: JsonObject, conventions: RopeConventions, layer_types: Sequence[str | None]
) -> list[bool]:
    """Return whether each layer has an indexer of its own.

    Layers of other types have none. A "shared" layer uses the keys that an earlier indexer chose.
    """
    count = len(layer_types)
    if conventions.indexer is None:
        return [False] * count
    of_type = [
        conventions.indexer_layer_types is None or layer_type in conventions.indexer_layer_types
        for layer_type in layer_types
    ]
    if not conventions.shares_indexers:
        return of_type
    for key in ("indexer_types", "index_topk_pattern"):
        if settings.get(key) is None:
            continue
        value = settings[key]
        names = value if isinstance(value, str) else as_list(key, value)
        if len(names) != count:
            raise ValueError(f"{key} must name each of {count} layers, got {len(names)}")
        for name in names:
            if not isinstance(name, str) or name not in INDEXER_TYPES:
                raise ValueError(f'{key} must have "full" or "shared", got {shown(name)}')
        return [own and INDEXER_TYPES[name] for own, name in zip(of_type, names, strict=True)]
    key = "index_topk_freq"
    every = 1 if settings.get(key) is None else positive_int(settings, key)
    offset = settings.get("index_skip_topk_offset", 2)
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ValueError(f"index_skip_topk_offset must be an integer, got {shown(offset)}")
    return [own and max(i - offset + 1, 0) % every == 0 for i, own in enumerate(of_type)]


def read_indexer(
    layer_config: JsonObject, conventions: RopeConventions, rope: RotarySpec
) -> RotarySpec | None:
    """Return the rope of a layer's indexer: the layer's frequencies, on the indexer's heads.

    Its pairing often differs from the layer's, and it often rotates the other end of its heads.
    """
    indexer = conventions.indexer
    if indexer is None or layer_config.get(indexer.head_dim_key) is None:
        return None
    head_dim = positive_int(layer_config, indexer.head_dim_key, most=MAX_HEAD_DIM)
    if head_dim < rope.rotary_dim:
        raise ValueError(
            f"{indexer.head_dim_key} must be at least the {rope.rotary_dim} dimensions that "
            f"rotate, got {head_dim}"
        )
    return replace(
        rope,
        head_dim=head_dim,
        start=head_dim - rope.rotary_dim if indexer.trailing else 0,
        pairing=indexer.pairing,
        write_pairing=indexer.write_pairing,
    )
