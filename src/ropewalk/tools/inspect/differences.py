"""How the ropes of two models differ, and how far their angles drift apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from os import PathLike
from typing import Any

from ropewalk.checks import ranges
from ropewalk.rotary.config.config_json import JsonObject
from ropewalk.tools.inspect.gguf_report import PERMUTED
from ropewalk.tools.inspect.inspect_model import inspect
from ropewalk.tools.inspect.rope_facts import LayerKind, ModelReport, RopeFacts, drift

Source = str | PathLike[str] | JsonObject
NEAR = (1, 100, 10_000)  # distances at which angles are compared, next to the models' contexts
EQUAL = 1e-3  # radians within the longest context; a GGUF file has float32 numbers
COMPARED = (
    "head_dim", "rotary_dim", "start", "pairing", "write_pairing", "theta", "rule", "rule_fields",
    "amplitude", "reverse", "pairs_by_axis",
)  # fmt: skip


@dataclass(frozen=True)
class FieldDifference:
    """A field that two ropes have with different values."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class AngleDifference:
    """The largest difference of two angles at a distance, in radians, and its pair.

    From about 1 radian on, the score of this pair tells nothing; differences above π wrap around.
    """

    distance: int
    radians: float
    pair: int


@dataclass(frozen=True)
class LayerDifference:
    """Layers that differ in the same way.

    angles: empty if the angles agree, or if they cannot be compared pair by pair; `reason` then
    says why. one_radian_at: the distance from which on a pair is off by a radian, or None.
    """

    stack: str
    layers: tuple[int, ...]
    layer_types: tuple[str, ...]
    fields: tuple[FieldDifference, ...]
    angles: tuple[AngleDifference, ...]
    one_radian_at: int | None
    reason: str | None


@dataclass(frozen=True)
class Comparison:
    """Two models' reports and how their ropes differ.

    same: whether all layers that both have rotate the same way, and both have the same layers.
    notes: differences of the models outside their layers, one sentence each.
    """

    first: ModelReport
    second: ModelReport
    same: bool
    layers: tuple[LayerDifference, ...]
    notes: tuple[str, ...]


def compare_ropes(
    first: Source | ModelReport, second: Source | ModelReport, *, pairing: str | None = None
) -> Comparison:
    """Return how the ropes of two models differ, layer by layer. Arguments as of `inspect`.

    Example:
        >>> from ropewalk import tools
        >>> config = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64}
        >>> old = {**config, "rope_theta": 10_000.0, "max_position_embeddings": 4096}
        >>> found = tools.compare_ropes(old, {**old, "rope_theta": 500_000.0})
        >>> [(field.name, field.first, field.second) for field in found.layers[0].fields]
        [('theta', 10000.0, 500000.0)]
        >>> found.layers[0].one_radian_at  # positions apart
        8
    """
    one, two = (
        each if isinstance(each, ModelReport) else inspect(each, pairing=pairing)
        for each in (first, second)
    )
    notes = missing = _missing_layers(one, two)
    layers = []
    for difference in _layers(one, two):
        names = {field.name for field in difference.fields}
        largest = max((angle.radians for angle in difference.angles), default=0.0)
        if names <= {"rule", "rule_fields"} and difference.reason is None and largest < EQUAL:
            numbers = ranges(difference.layers)
            place = f"{difference.stack} layers {numbers}" if numbers else difference.stack
            notes = [*notes, f"{place}: the rules are written differently and rotate the same"]
        else:
            layers.append(difference)
    same = not layers and not missing
    return Comparison(one, two, same, tuple(layers), (*notes, *_notes(one, two)))


def _layers(one: ModelReport, two: ModelReport) -> Iterator[LayerDifference]:
    # The order in which a GGUF file writes pairs is that of q and of k: scores are the same.
    not_compared: tuple[str, ...] = () if one.form == two.form else ("write_pairing",)
    not_compared += ("pairing",) if _permuted(one, two) else ()
    for a, b in product(one.kinds, two.kinds):
        shared = tuple(sorted(set(a.layers) & set(b.layers)))
        unknown = not a.layers or not b.layers
        alike = a.stack == b.stack and (shared or (unknown and a.layer_types == b.layer_types))
        if alike and (difference := _difference(a, b, shared, not_compared)):
            yield difference


def _permuted(one: ModelReport, two: ModelReport) -> bool:
    """Return whether one is a GGUF file whose weights were permuted for its pairing."""
    ggufs = [report for report in (one, two) if report.form == "GGUF"]
    return len(ggufs) == 1 and ggufs[0].model_type in PERMUTED


def _difference(
    a: LayerKind, b: LayerKind, layers: tuple[int, ...], not_compared: tuple[str, ...]
) -> LayerDifference | None:
    fields = [
        FieldDifference(name, getattr(a, name), getattr(b, name))
        for name in ("softmax_factor", "query_temperature")
        if not _same(getattr(a, name), getattr(b, name))
    ]
    fields += _rope_fields(a.rope, b.rope, "")
    fields += _rope_fields(a.indexer, b.indexer, "indexer.")
    fields = [field for field in fields if field.name not in not_compared]
    if not fields:
        return None
    angles: tuple[AngleDifference, ...] = ()
    one_radian, reason = None, None
    if a.rope is not None and b.rope is not None:
        sizes = a.rope.rotary_dim, b.rope.rotary_dim
        if sizes[0] != sizes[1]:
            reason = (
                f"{sizes[0]} and {sizes[1]} dimensions rotate, so pairs have other dimensions and "
                f"other angles from distance 1 on"
            )
        elif a.rope.spec.axis_of_pair != b.rope.spec.axis_of_pair:
            reason = "pairs follow different axes"
        else:
            angles, one_radian = _angles(a.rope, b.rope)
    types = tuple(dict.fromkeys((*a.layer_types, *b.layer_types)))
    return LayerDifference(a.stack, layers, types, tuple(fields), angles, one_radian, reason)


def _rope_fields(
    one: RopeFacts | None, two: RopeFacts | None, prefix: str
) -> Iterator[FieldDifference]:
    if one is None or two is None:
        if one is not two:
            has = ["none" if each is None else "rotates" for each in (one, two)]
            yield FieldDifference(prefix.rstrip(".") or "rope", *has)
        return
    for name in COMPARED:
        first, second = getattr(one, name), getattr(two, name)
        one_axis = name == "pairs_by_axis" and len(first) == len(second) == 1  # as rotary_dim says
        if not one_axis and not _same(first, second):
            yield FieldDifference(prefix + name, first, second)
    for length in _possible_lengths(one, two):
        found = [each.spec.amplitude_at(length) for each in (one, two)]
        if found != [one.amplitude, two.amplitude] and not _same(*found):
            yield FieldDifference(f"{prefix}amplitude_at({length})", *found)
    same = all(_same(getattr(one, name), getattr(two, name)) for name in COMPARED)
    if same and one.spec.axes != two.spec.axes:
        yield FieldDifference(f"{prefix}axes", one.spec.axis_of_pair, two.spec.axis_of_pair)


def _possible_lengths(one: RopeFacts, two: RopeFacts) -> list[int]:
    """Return the lengths from which a rule has other frequencies or another amplitude."""
    rules = [each.spec.scaling for each in (one, two)]
    lengths = {n for rule in rules if rule is not None for n in rule.possible_lengths()}
    return sorted(n for n in lengths if n is not None)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-6)  # a GGUF file has float32 numbers
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    return bool(first == second)


def _angles(one: RopeFacts, two: RopeFacts) -> tuple[tuple[AngleDifference, ...], int | None]:
    contexts = [one.original_length, one.extended_length, two.original_length, two.extended_length]
    known = [each for each in contexts if each is not None]
    # A rule may change the angles right after the longest stated context.
    known += [n for n in _possible_lengths(one, two) if n > max(known, default=1)]
    longest = max(known, default=NEAR[-1])
    distances = sorted({*(each for each in NEAR if each < longest), *(n - 1 for n in known), 1})
    angles = []
    for distance in filter(None, distances):
        per_position, pair = drift(one.spec, two.spec, distance + 1)
        angles.append(AngleDifference(distance, per_position * distance, pair))
    if not any(angle.radians for angle in angles):
        return (), None
    per_position, _ = drift(one.spec, two.spec, longest)
    one_radian = math.ceil(1 / per_position) if per_position * longest >= 1 else None
    return tuple(angles), one_radian


def _missing_layers(one: ModelReport, two: ModelReport) -> list[str]:
    """Return sentences about stacks and layers that only one of the models has."""
    notes = []
    for stack in dict.fromkeys(kind.stack for kind in (*one.kinds, *two.kinds)):
        layers = [
            [len(kind.layers) for kind in report.kinds if kind.stack == stack]
            for report in (one, two)
        ]
        counts = list(map(sum, layers))
        if not all(layers):
            notes.append(f"only {(one if layers[0] else two).source} has the stack {stack!r}")
        elif counts[0] != counts[1] and all(counts):
            notes.append(f"the stack {stack!r} has {counts[0]} and {counts[1]} layers")
    return notes


def _notes(one: ModelReport, two: ModelReport) -> Iterator[str]:
    if one.max_length != two.max_length:
        lengths = ["unknown" if n is None else f"{n:,}" for n in (one.max_length, two.max_length)]
        yield f"the stated contexts are {lengths[0]} and {lengths[1]}"
    if one.form == two.form and one.model_type != two.model_type:
        yield f"the model types are {one.model_type} and {two.model_type}"
    if _permuted(one, two):
        yield (
            "the GGUF file has permuted weights: its interleaved pairs are the halves of the "
            "config.json, so the pairing is not compared"
        )
