"""The catalogue: how the code of each model type rotates, and test vectors to check any code.

The functions read catalogue.json and the conformance vectors, which users of other languages read
too. docs/catalogue.py writes the first from the tables of `ropewalk.rotary.config`, where each fact
is stated once; conformance/generate.py writes the second.

catalogue.schema.json describes every field of the records. A hash leaves out the dictionaries,
which have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ropewalk.checks import did_you_mean, shown

if TYPE_CHECKING:  # it takes a second to import torch, which reading the catalogue does not need
    from ropewalk.rotary.pairing import Pairing


__all__ = [
    "CatalogueEntry",
    "CatalogueVector",
    "IndexerOfType",
    "RopeOfType",
    "Section",
    "Switch",
    "Theta",
    "catalogue",
    "catalogue_vectors",
]


VECTOR_AREAS = ("pairings", "parts", "scaling", "axes", "far")
VECTOR_FIELDS = ("name", "what", "positions", "length", "q", "k", "rotated_q", "rotated_k")


@overload
def catalogue(model_type: None = None) -> tuple[CatalogueEntry, ...]: ...


@overload
def catalogue(model_type: str) -> CatalogueEntry: ...


def catalogue(model_type: str | None = None) -> CatalogueEntry | tuple[CatalogueEntry, ...]:
    """Return the catalogue's entry of a model type, or without one all entries, by name.

    model_type: as in config.json. An entry has the facts that config.json does not state: pairing,
    rotary part, default theta, layers without rope, …, and the names of test vectors. The fields
    are described in catalogue.schema.json and on the page "Catalogue".

    Raises ValueError for a model type that the catalogue does not have; the message has the nearest
    name.

    Example:
        >>> from ropewalk import tools
        >>> entry = tools.catalogue("gptj")
        >>> entry.rope.pairing, entry.rope.rotary_part, entry.rope.theta_default
        ('interleaved', 'first', 10000.0)
        >>> entry.source
        'models/gptj/modeling_gptj.py'
    """
    if model_type is None:
        return tuple(map(deepcopy, _entries().values()))
    if not isinstance(model_type, str):
        raise TypeError(f"model_type must be a string or None, got {shown(model_type)}")
    if model_type not in _entries():
        raise ValueError(
            f"model_type must be one that the catalogue has, got {shown(model_type)}"
            + (did_you_mean(model_type, _entries()) or "; `ropewalk catalogue` lists all")
        )
    return deepcopy(_entries()[model_type])  # it has dictionaries, which a caller may change


def catalogue_vectors() -> Mapping[str, CatalogueVector]:
    """Return test vectors by name: ropes, and queries and keys before and after rotation.

    They are those of the conformance suite that have a rope of their own: its areas `VECTOR_AREAS`.

    Example:
        >>> from ropewalk import tools
        >>> vector = tools.catalogue_vectors()["half"]
        >>> vector.what, vector.positions
        ('all dimensions, i and i + R/2 rotate together (Llama)', (0, 1, 17, 4095))
    """
    return {
        name: replace(vector, spec=deepcopy(vector.spec)) for name, vector in _vectors().items()
    }


def read_data(name: str) -> dict[str, Any]:
    """Return a JSON file of the catalogue: catalogue or catalogue.schema."""
    text = files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _entries() -> dict[str, CatalogueEntry]:
    types = read_data("catalogue")["model_types"]
    return {name: _entry(name, facts) for name, facts in types.items()}


@cache
def _vectors() -> dict[str, CatalogueVector]:
    package = Path(__file__).parents[2]
    home = package / "conformance"  # of the wheel; a clone has it beside src/
    home = home if home.is_dir() else package.parents[1] / "conformance"
    found = [
        vector
        for area in VECTOR_AREAS
        for vector in json.loads((home / "vectors" / f"{area}.json").read_text("utf-8"))["vectors"]
    ]
    return {
        vector["name"]: CatalogueVector(
            spec=vector["rope"],
            axes=vector["order"],
            **{key: _tuples(vector[key]) for key in VECTOR_FIELDS},
        )
        for vector in found
    }


def _entry(model_type: str, facts: Mapping[str, Any]) -> CatalogueEntry:
    rope, sections = facts["rope"], facts["sections"]
    fields = {
        **facts,
        "rope": None if rope is None else _rope(rope),
        "sections": sections and {name: Section(**each) for name, each in sections.items()},
    }
    return CatalogueEntry(model_type, **fields)


def _rope(facts: Mapping[str, Any]) -> RopeOfType:
    fields = {name: _tuples(value) for name, value in facts.items()}
    indexer = facts["indexer"]
    if indexer is not None:
        fields["indexer"] = IndexerOfType(**{k: _tuples(v) for k, v in indexer.items()})
    by_type, switches = facts["theta_by_layer_type"], facts["rope_switches"]
    fields["theta_by_layer_type"] = {name: Theta(**each) for name, each in by_type.items()}
    fields["rope_switches"] = {name: Switch(**each) for name, each in switches.items()}
    return RopeOfType(**fields)


def _tuples(value: Any) -> Any:
    """Return lists as tuples, however deep: records are not to change."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


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
    """Queries and keys of one head (S, D) before and after rotation, exact to float64.

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
