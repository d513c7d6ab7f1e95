"""The rope of the indexer that chooses keys in sparse attention (DeepSeek-V3.2 and similar)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.values import JsonObject, as_list, positive_int
from ropewalk.rotary.spec import MAX_HEAD_DIM, RotarySpec

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
    every = positive_int(
        {"index_topk_freq": 1, **_given(settings, "index_topk_freq")}, "index_topk_freq"
    )
    offset = settings.get("index_skip_topk_offset", 2)
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ValueError(f"index_skip_topk_offset must be an integer, got {shown(offset)}")
    return [own and max(i - offset + 1, 0) % every == 0 for i, own in enumerate(of_type)]


def _given(settings: JsonObject, key: str) -> dict[str, object]:
    return {key: settings[key]} if settings.get(key) is not None else {}


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
