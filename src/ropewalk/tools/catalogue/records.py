"""The records of the catalogue: what an entry of catalogue.json and of vectors.json has.

catalogue.schema.json describes every field. A hash leaves out the dictionaries, which have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # it takes a second to import torch, which reading the catalogue does not need
    from ropewalk.rotary.pairing import Pairing

RotaryPart = Literal["all", "first", "last"]
Kind = Literal["rope", "sections", "no rope", "not described"]


@dataclass(frozen=True)
class Section:
    """Where the config.json of a model of several stacks describes one of them."""

    path: str
    model_type: str | None


@dataclass(frozen=True)
class Theta:
    """The theta of one type of layers: its key, and the default of the model's code."""

    key: str
    default: float | None


@dataclass(frozen=True)
class Switch:
    """The value of a key with which a model has a rope, and the default of the model's code."""

    value: Any
    default: Any


@dataclass(frozen=True)
class IndexerOfType:
    """The rope of the indexer that chooses the keys of sparse attention."""

    pairing: Pairing
    write_pairing: Pairing
    rotary_part: RotaryPart
    head_dim_key: str
    layer_types: tuple[str, ...] | None
    shared: bool
    vectors: tuple[str, ...]


@dataclass(frozen=True)
class RopeOfType:
    """The conventions of one model type's rope."""

    pairing: Pairing
    write_pairing: Pairing
    pairing_key: str | None
    rotary_part: RotaryPart
    rotary_part_default: float | None
    rotary_part_keys: tuple[str, ...]
    head_dim_default: int | None
    axes: str
    axis_count: int
    mrope_section_default: tuple[int, ...] | None
    reverse: bool
    blocks: bool
    continuous: bool
    theta_key: str
    theta_default: float | None
    theta_by_layer_type: Mapping[str, Theta] = field(hash=False)
    extra_rule_fields: tuple[str, ...]
    rule_fields_of_code: Mapping[str, float] = field(hash=False)
    unscaled_layer_types: tuple[str, ...]
    softmax_factor: Literal["1", "m(mscale_all_dim)^2"]
    indexer: IndexerOfType | None
    nope_layer_types: tuple[str, ...]
    nope_key: str | None
    rope_switches: Mapping[str, Switch] = field(hash=False)
    required_keys: tuple[str, ...]
    vectors: tuple[str, ...]


@dataclass(frozen=True)
class CatalogueEntry:
    """One model type: its source file, and its rope, its sections, or why it has none."""

    model_type: str
    kind: Kind
    family: str
    source: str
    reason: str | None = None
    rope: RopeOfType | None = None
    sections: Mapping[str, Section] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class CatalogueVector:
    """Queries and keys of one head (S, D) before and after rotation, with 17 digits.

    spec: the rope as JSON; `rotary_spec` makes a `RotarySpec` of it. axes: the name of the order of
    its axes. positions: (S,), or (A, S) if it has several axes. length: tokens of the complete
    sequence, if the rule depends on it.
    """

    name: str
    what: str
    axes: str
    spec: Mapping[str, Any] = field(hash=False)
    positions: tuple[Any, ...]
    length: int | None
    q: tuple[tuple[float, ...], ...]
    k: tuple[tuple[float, ...], ...]
    rotated_q: tuple[tuple[float, ...], ...]
    rotated_k: tuple[tuple[float, ...], ...]
