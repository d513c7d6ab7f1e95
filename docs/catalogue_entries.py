"""The entries of the catalogue, made from the tables that `from_config` reads.

The tables have each fact once. What follows from them (which dimensions rotate, how many axes there
are, whether the softmax has a factor) is read from a rope that the reader makes of them. So an
entry cannot differ from what the reader does.

The test vectors that an entry names are ropes as JSON, with queries and keys before and after
rotation. conformance/generate.py computes them, without the code of this library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.head_layouts import read_indexer, read_rope
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.reader import softmax_factor
from ropewalk.rotary.config.rope_fields import JSON_NAMES, ORIGINAL_LENGTH, RULES_BY_ROPE_TYPE
from ropewalk.rotary.config.sections import STACK_KEYS
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS, WITH_CLASS_SIZES
from ropewalk.rotary.config.unread_types import UNSUPPORTED, WITHOUT_ROPE
from ropewalk.rotary.scaling import YaRN
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.catalogue import (
    CatalogueEntry,
    CatalogueVector,
    IndexerOfType,
    RopeOfType,
    Section,
    Switch,
    Theta,
)
from ropewalk.tools.catalogue.entries import rotary_part, rotary_spec

Vectors = Mapping[str, CatalogueVector]

OWN_CODE = "own code of the model"
BY_SECTION = "each section states a model_type, whose entry has its conventions"
HEAD_DIM = 64  # of the ropes that are made here: 4 divides it, 6 does not


def model_types() -> list[str]:
    """Return every model type that the tables know, those without a rope too, in order."""
    known = {*CONVENTIONS, *MULTIMODAL_MODELS, *WITH_CLASS_SIZES, *UNSUPPORTED, *WITHOUT_ROPE}
    return sorted(known, key=str.lower)


def make_entry(model_type: str, file: str | None, vectors: Vectors) -> CatalogueEntry:
    """Return the entry of a model type. file: its modeling file in transformers, if it has one."""
    family = model_type if file is None else file.split("/")[1]
    conventions = CONVENTIONS.get(model_type)
    read_in = [file, conventions.code if conventions else None]
    source = "; ".join(filter(None, read_in)) or OWN_CODE
    entry = CatalogueEntry(model_type, "rope", family, source)
    if model_type in UNSUPPORTED:
        return dataclasses.replace(entry, kind="not described", reason=UNSUPPORTED[model_type])
    if model_type in WITHOUT_ROPE and conventions is None:
        return dataclasses.replace(entry, kind="no rope", reason=WITHOUT_ROPE[model_type])
    return dataclasses.replace(
        entry,
        kind="sections" if conventions is None else "rope",
        reason=BY_SECTION if model_type in WITH_CLASS_SIZES - MULTIMODAL_MODELS.keys() else None,
        rope=None if conventions is None else _rope(conventions, vectors),
        sections=_sections(model_type),
    )


def _sections(model_type: str) -> Mapping[str, Section] | None:
    if model_type in MULTIMODAL_MODELS:
        return {name: Section(*place) for name, place in MULTIMODAL_MODELS[model_type].items()}
    if model_type in WITH_CLASS_SIZES:
        return {name: Section(key, None) for name, key in STACK_KEYS.items()}
    return None


def _rope(conventions: RopeConventions, vectors: Vectors) -> RopeOfType:
    rope = _example(conventions)
    by_yarn = dataclasses.replace(rope, scaling=YaRN(4.0, 4096, mscale_all_dim=1.0))
    order = conventions.axis_order or "axial"
    sections = conventions.rope_defaults.get("mrope_section")
    made = RopeOfType(
        pairing=rope.pairing,
        write_pairing=rope.write_pairing,
        pairing_key=conventions.pairing_key,
        rotary_part=rotary_part(rope),
        rotary_part_default=conventions.rope_defaults.get("partial_rotary_factor"),
        rotary_part_keys=_rotary_part_keys(conventions),
        head_dim_default=conventions.defaults.get("head_dim"),
        axes="one" if rope.axes is None else order,
        axis_count=rope.axis_count,
        mrope_section_default=sections and tuple(sections),
        reverse=rope.reverse,
        blocks=rope.blocks is not None,
        continuous=rope.continuous,
        theta_key=_theta_key(conventions),
        theta_default=conventions.rope_defaults.get("rope_theta"),
        theta_by_layer_type={
            layer_type: Theta(keys["rope_theta"], conventions.defaults.get(keys["rope_theta"]))
            for layer_type, keys in conventions.keys_by_layer_type.items()
            if "rope_theta" in keys
        },
        extra_rule_fields=tuple(sorted(conventions.extra_fields)),
        rule_fields_of_code=dict(conventions.yarn_fields),
        unscaled_layer_types=tuple(sorted(conventions.unscaled_layer_types)),
        softmax_factor="1" if softmax_factor(by_yarn, conventions) == 1 else "m(mscale_all_dim)^2",
        indexer=_indexer(conventions, rope, vectors),
        nope_layer_types=tuple(sorted(conventions.nope_layer_types)),
        nope_key=_nope_key(conventions),
        rope_switches={
            _placed(key, conventions): Switch(value, conventions.defaults.get(key))
            for key, value in conventions.rope_switches.items()
        },
        required_keys=conventions.required_keys,
        vectors=(),
    )
    return dataclasses.replace(made, vectors=vectors_of(made, made.axes, vectors))


def _example(conventions: RopeConventions) -> RotarySpec:
    """Return a small rope with these conventions; half a head rotates if a part may."""
    sizes = {"head_dim": HEAD_DIM, "qk_nope_head_dim": HEAD_DIM // 2}
    if conventions.head_layout in ("latent", "trailing"):
        sizes["qk_rope_head_dim"] = HEAD_DIM // 2
    if conventions.rotary_dim_key is not None:
        sizes[conventions.rotary_dim_key] = HEAD_DIM // 2
    fields: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
    pairs = HEAD_DIM // 2
    if conventions.partial_rotary:
        fields["partial_rotary_factor"] = 0.5
        pairs //= 2
    if conventions.axis_order is not None:
        count = conventions.axis_counts[-1]
        each = pairs // count
        fields["mrope_section"] = [*[each] * (count - 1), pairs - (count - 1) * each]
    return read_rope(sizes, conventions, fields)


def _rotary_part_keys(conventions: RopeConventions) -> tuple[str, ...]:
    """Return the keys of config.json that say how many dimensions rotate."""
    if conventions.head_layout in ("latent", "trailing"):
        return ("qk_rope_head_dim",)
    part = "partial_rotary_factor"
    keys = (*(key for key, usual in conventions.aliases.items() if usual == part), part)
    keys = keys if conventions.partial_rotary else ()
    return keys if conventions.rotary_dim_key is None else (*keys, conventions.rotary_dim_key)


def _theta_key(conventions: RopeConventions) -> str:
    """Return the key of config.json that has theta, next to or in the rope's own fields."""
    if conventions.rope_ratio_key is not None:
        return conventions.rope_ratio_key
    if conventions.rope_parameters_by_layer_type:
        return "rope_parameters.LAYER_TYPE.rope_theta"
    renamed = [key for key, name in conventions.aliases.items() if name == "rope_theta"]
    return renamed[0] if renamed else _placed("rope_theta", conventions)


def _placed(key: str, conventions: RopeConventions) -> str:
    """Return the path of a key that may be in a dictionary of its own."""
    return key if conventions.rope_section is None else f"{conventions.rope_section}.{key}"


def _nope_key(conventions: RopeConventions) -> str | None:
    """Return the key of config.json that lists layers without rope."""
    if conventions.reads_no_rope_layers:
        return "no_rope_layers"
    return "layer_rope_theta" if "layer_rope_theta" in conventions.required_keys else None


def _indexer(
    conventions: RopeConventions, rope: RotarySpec, vectors: Vectors
) -> IndexerOfType | None:
    indexer = conventions.indexer
    if indexer is None:
        return None
    spec = read_indexer({indexer.head_dim_key: 2 * rope.rotary_dim}, conventions, rope)
    assert spec is not None
    layer_types = conventions.indexer_layer_types
    made = IndexerOfType(
        pairing=spec.pairing,
        write_pairing=spec.write_pairing,
        rotary_part=rotary_part(spec),
        head_dim_key=indexer.head_dim_key,
        layer_types=None if layer_types is None else tuple(sorted(layer_types)),
        shared=conventions.shares_indexers,
        vectors=(),
    )
    order = "one" if spec.axes is None else str(conventions.axis_order)
    return dataclasses.replace(made, vectors=vectors_of(made, order, vectors))


def rules() -> dict[str, Any]:
    """Return the fields of each scaling rule in config.json, by `rope_type`."""
    return {
        rope_type: {
            "rule": rule.__name__,
            "needs_length": rule.needs_length,
            "fields": {
                JSON_NAMES.get(field.name, field.name): {
                    "required": field.default is dataclasses.MISSING,
                    "default": _default(rope_type, field),
                }
                for field in dataclasses.fields(rule)  # type: ignore[arg-type]
            },
        }
        for rope_type, rule in RULES_BY_ROPE_TYPE.items()
    }


def _default(rope_type: str, field: dataclasses.Field[Any]) -> Any:
    """Return the default of a rule's field in config.json, or None."""
    if rope_type == "longrope" and field.name == "factor":  # the reader computes it
        return f"max_position_embeddings / {ORIGINAL_LENGTH}"
    return None if field.default is dataclasses.MISSING else field.default


@cache
def _spec_of(vector: CatalogueVector) -> RotarySpec:
    return rotary_spec(vector.spec)


def vectors_of(
    rope: RopeOfType | IndexerOfType, axes: str, vectors: Mapping[str, CatalogueVector]
) -> tuple[str, ...]:
    """Return the names of the test vectors with this pairing, rotary part and order of axes.

    A rope on the first dimensions rotates all of them if the config says so, so both fit.
    """
    parts = {"first": ("first", "all")}.get(rope.rotary_part, (rope.rotary_part,))
    same = ("reverse", "continuous")

    def fits(vector: CatalogueVector) -> bool:
        spec = _spec_of(vector)
        return (
            (spec.pairing, spec.write_pairing) == (rope.pairing, rope.write_pairing)
            and rotary_part(spec) in parts
            and vector.axes == axes
            and (spec.blocks is not None) is getattr(rope, "blocks", False)
            and all(getattr(spec, name) is getattr(rope, name, False) for name in same)
        )

    return tuple(name for name, vector in vectors.items() if fits(vector))
