"""Numbers about one rope: full turns, error of float32 angles, and how two ropes drift apart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ropewalk.rotary.scaling import DynamicNTK, LongRoPE, Proportional, Scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.facts import RopeFacts, Turns

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
        amplitude=spec.amplitude_at(length_for(spec, longest)),
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
    if rule is None:
        return {}
    values = {each.name: getattr(rule, each.name) for each in dataclasses.fields(rule)}  # type: ignore[arg-type]
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def length_for(spec: RotarySpec, length: int | None) -> int | None:
    """Return the length to pass to a spec: None unless its rule depends on the length."""
    if spec.scaling is None or not spec.scaling.needs_length:
        return None
    return length or 1


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
    return tuple(spec.wavelengths(length_for(spec, length)).tolist())


def _turns(spec: RotarySpec, original: int | None, extended: int | None) -> tuple[Turns, ...]:
    found = []
    rule = spec.scaling is not None and not isinstance(spec.scaling, Proportional)
    if original is not None:
        # LongRoPE's short factors also apply within the original context.
        within = spec if isinstance(spec.scaling, LongRoPE) else without_rule(spec)
        plain = within is not spec or not rule
        found.append(turns_within(within, original, "original", rule=not plain))
    if extended is not None:
        found.append(turns_within(spec, extended, "extended", rule=rule))
    return tuple(found)


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
    frequencies = spec.inverse_frequencies(length_for(spec, length))
    positions = torch.arange(max(0, length - LAST_POSITIONS), length, dtype=torch.float64)
    exact = positions[:, None] * frequencies
    rounded = positions.float()[:, None] * frequencies.float()
    return float((rounded.double() - exact).abs().max())


def signed_frequencies(spec: RotarySpec, length: int | None) -> Tensor:
    """Return radians per position, float64 (R/2,), negative if the rope is reversed."""
    return spec.inverse_frequencies(length_for(spec, length))


def drift(first: RotarySpec, second: RotarySpec, length: int) -> tuple[float, int]:
    """Return the largest difference of two ropes' frequencies, and its pair.

    In radians per position. Both ropes have the same number of pairs. length: of the
    sequence, for rules that depend on it.
    """
    gap = (signed_frequencies(first, length) - signed_frequencies(second, length)).abs()
    pair = int(gap.argmax())
    return float(gap[pair]), pair
