"""What `inspect` reports, as frozen dataclasses of plain data and as JSON, and its numbers.

The numbers of a rope: full turns, the error of float32 angles, and how two ropes drift apart.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch

from ropewalk.rotary.scaling import DynamicNTK, LongRoPE, Proportional, Scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.grids import AxisFacts


@dataclass(frozen=True)
class Turns:
    """Which pairs make a full turn within a length.

    context: "original" or "extended". rule: whether the frequencies are those of the rule.
    full: pairs whose wavelength is at most the length. less: pairs that never make a full turn.
    still: pairs that do not rotate at all (p-RoPE).
    """

    context: str
    length: int
    rule: bool
    full: tuple[int, ...]
    less: tuple[int, ...]
    still: tuple[int, ...]


@dataclass(frozen=True)
class RopeFacts:
    """One rope.

    spec: the same as a `RotarySpec`; `to_plain` writes the call that makes it.
    pairing: "half" or "interleaved", or None if the file does not state it.
    origins: where each value was read, by the names of `RotarySpec`'s fields.
    rule: the name of the scaling rule, or None. rule_fields: its fields that are given.
    pairs_by_axis: the number of pairs that follow each axis; one number if there is one axis.
    original_length, extended_length: the context before and after the rule, or None if the file
        does not tell. Without a rule there is only the first.
    amplitude: the factor of cos and sin at the longest context.
    plain_wavelengths, wavelengths: positions per full turn of each pair, without the rule and
        with it (at the longest context); inf if a pair does not rotate.
    float32_error: radians by which an angle can be off within the longest context, if frequency
        and product are each rounded to float32, as most models compute them. None if the context
        is not known.
    """

    spec: RotarySpec
    head_dim: int
    rotary_dim: int
    start: int
    pairing: str | None
    write_pairing: str | None
    theta: float
    origins: Mapping[str, str]
    rule: str | None
    rule_fields: Mapping[str, Any]
    amplitude: float
    reverse: bool
    pairs_by_axis: tuple[int, ...]
    original_length: int | None
    extended_length: int | None
    plain_wavelengths: tuple[float, ...]
    wavelengths: tuple[float, ...]
    turns: tuple[Turns, ...]
    float32_error: float | None


@dataclass(frozen=True)
class LayerKind:
    """Layers that have the same rope.

    layers: their numbers within the stack; empty if the file does not say which they are.
    rope: None if the layers have none (NoPE). softmax_factor: a factor of the scores, on top of
    the usual 1/sqrt(head_dim). query_temperature: its fields, or None. indexer: the rope of sparse
    attention's indexer, or None.
    """

    stack: str
    layers: tuple[int, ...]
    layer_types: tuple[str, ...]
    rope: RopeFacts | None
    softmax_factor: float = 1.0
    query_temperature: Mapping[str, float] | None = None
    indexer: RopeFacts | None = None


@dataclass(frozen=True)
class Caution:
    """Something that a user should know before the model is served, trained or merged.

    id: a stable name, such as "theta-default". where: a stack, a key or an engine, or "".
    """

    id: str
    where: str
    cause: str
    way_out: str


@dataclass(frozen=True)
class ModelReport:
    """What a model's ropes do.

    source: the file or the name. form: "config.json" or "GGUF". max_length: the context that the
    file states, under `max_length_key`; None if it states none. axes: those of images or video.
    """

    source: str
    form: str
    model_type: str | None
    max_length: int | None
    max_length_key: str | None
    kinds: tuple[LayerKind, ...]
    warnings: tuple[Caution, ...] = field(default=())
    axes: tuple[AxisFacts, ...] = ()

    def kind_of(self, layer: int, stack: str = "text") -> LayerKind | None:
        """Return the kind of a layer, counted from 0, or None if the file does not tell."""
        return next((k for k in self.kinds if k.stack == stack and layer in k.layers), None)


class Plain:
    """A result that can be written as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data; a number that is not finite is None."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def to_plain(value: Any) -> Any:
    """Return a report, or a part of it, as dict, list, str, float, int, bool and None.

    A wavelength of inf is None. A spec and a rule are the calls that make them.
    """
    if isinstance(value, RotarySpec | Scaling):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


LAST_POSITIONS = 4_096  # the error grows with the position, so it is measured at the end


def rope_facts(
    spec: RotarySpec,
    origins: Mapping[str, str],
    original: int | None,
    extended: int | None,
    *,
    knows_pairing: bool = True,
) -> RopeFacts:
    """Return the facts of one rope. original, extended: its contexts; see `RopeFacts`."""
    longest = extended or original
    counts = [spec.axis_of_pair.count(axis) for axis in sorted(set(spec.axis_of_pair))]
    return RopeFacts(
        spec=spec,
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
        start=spec.start,
        pairing=spec.pairing if knows_pairing else None,
        write_pairing=spec.write_pairing if knows_pairing else None,
        theta=spec.theta,
        origins=dict(origins),
        rule=None if spec.scaling is None else type(spec.scaling).__name__,
        rule_fields=rule_fields(spec.scaling),
        amplitude=spec.amplitude_at(longest or 1),
        reverse=spec.reverse,
        pairs_by_axis=tuple(counts),
        original_length=original,
        extended_length=extended,
        plain_wavelengths=wavelengths(without_rule(spec), None),
        wavelengths=wavelengths(spec, longest),
        turns=_turns(spec, original, extended),
        float32_error=None if longest is None else float32_error(spec, longest),
    )


def contexts(rule: Scaling | None, longest: int | None) -> tuple[int | None, int | None]:
    """Return the context before a rule and the one after it, each None if it is not known."""
    if rule is None or isinstance(rule, Proportional):
        return longest, None
    original = getattr(rule, "original_length", None)
    if original is None:  # a rule such as Linear does not state which of both `longest` is
        return None, longest
    scaled = round(original * getattr(rule, "factor", 1.0))
    if isinstance(rule, DynamicNTK) or longest is None or longest <= original:
        return original, scaled if scaled > original else None
    return original, longest


def rule_fields(rule: Scaling | None) -> dict[str, Any]:
    """Return the fields of a rule that are not None, as plain data."""
    values = {} if rule is None else vars(rule)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}


def without_rule(spec: RotarySpec) -> RotarySpec:
    """Return the rope without its scaling rule.

    p-RoPE keeps its rule, because its pairs that do not rotate are part of the model.
    """
    rule = spec.scaling
    if isinstance(rule, Proportional):
        return dataclasses.replace(spec, scaling=dataclasses.replace(rule, factor=1.0))
    return dataclasses.replace(spec, scaling=None)


def wavelengths(spec: RotarySpec, length: int | None) -> tuple[float, ...]:
    """Return each pair's positions per full turn, within a context of this length."""
    return tuple(spec.wavelengths(length or 1).tolist())


def _turns(spec: RotarySpec, original: int | None, extended: int | None) -> tuple[Turns, ...]:
    turns = []
    if original is not None:
        # LongRoPE's short factors also apply within the original context.
        is_longrope = isinstance(spec.scaling, LongRoPE)
        within = spec if is_longrope else without_rule(spec)
        turns.append(turns_within(within, original, "original", rule=is_longrope))
    if extended is not None:
        rule = spec.scaling is not None and not isinstance(spec.scaling, Proportional)
        turns.append(turns_within(spec, extended, "extended", rule=rule))
    return tuple(turns)


def turns_within(spec: RotarySpec, length: int, context: str, *, rule: bool) -> Turns:
    """Return which pairs make a full turn within a length."""
    each = list(enumerate(wavelengths(spec, length)))
    return Turns(
        context,
        length,
        rule,
        full=tuple(i for i, wavelength in each if wavelength <= length),
        less=tuple(i for i, wavelength in each if length < wavelength < math.inf),
        still=tuple(i for i, wavelength in each if wavelength == math.inf),
    )


def float32_error(spec: RotarySpec, length: int) -> float:
    """Return the radians by which a float32 angle can be off before position `length`.

    Frequency and product are each rounded once. Code that also computes the frequencies in float32
    is off by some more.
    """
    frequencies = spec.inverse_frequencies(length)
    positions = torch.arange(max(0, length - LAST_POSITIONS), length, dtype=torch.float64)
    exact = positions[:, None] * frequencies
    rounded = positions.float()[:, None] * frequencies.float()
    return float((rounded.double() - exact).abs().max())


def drift(first: RotarySpec, second: RotarySpec, length: int) -> tuple[float, int]:
    """Return the largest difference of two ropes' frequencies, and its pair.

    In radians per position. Both ropes have the same number of pairs. length: of the
    sequence, for rules that depend on it.
    """
    one, two = (spec.inverse_frequencies(length) for spec in (first, second))
    gap = (one - two).abs()
    pair = int(gap.argmax())
    return float(gap[pair]), pair
