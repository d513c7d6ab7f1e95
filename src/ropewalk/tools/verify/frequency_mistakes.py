"""Frequencies and angles that common mistakes make, to be compared with what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import LongRoPE, NTKAware, Scaling, YaRN
from ropewalk.rotary.spec import RotarySpec


class Hypothesis(NamedTuple):
    """Frequencies (R/2,) that a mistake would give: its fault, and what it is in words."""

    fault: str
    says: str
    frequencies: Tensor


def other_ropes(model: ModelSpec, rope: RotarySpec) -> dict[str, RotarySpec]:
    """Return the ropes of a model's text layers that differ from one, by the first such layer."""
    others: dict[str, RotarySpec] = {}
    for index, layer in enumerate(model.layers):
        if layer.rope is not None and layer.rope not in (rope, *others.values()):
            kind = f", {layer.layer_type}" if layer.layer_type else ""
            others[f"layer {index}{kind}"] = layer.rope
    return others


def frequency_hypotheses(
    spec: RotarySpec, others: Mapping[str, RotarySpec], length: int | None
) -> Iterator[Hypothesis]:
    """Yield the frequencies that a wrong reading of a config would give, the likeliest first."""
    expected = spec.inverse_frequencies(length)
    if spec.scaling is not None:
        plain = replace(spec, scaling=None).inverse_frequencies()
        name = type(spec.scaling).__name__
        yield Hypothesis("rule-ignored", f"frequencies are those without {name}", plain)
        twice = expected.square() / plain.where(plain != 0, 1.0)
        yield Hypothesis("rule-applied-twice", f"{name} is applied twice", twice)
        if (factor := getattr(spec.scaling, "factor", None)) is not None:
            says = f"{name} is applied, and positions are divided by its factor {factor:g} too"
            yield Hypothesis("rule-applied-twice", says, expected / factor)
    for name, other in others.items():
        if other != spec:
            # At its rule's own length if none is known.
            at = length or int(getattr(other.scaling, "original_length", 1))
            says, theirs = f"frequencies are those of {name}", other.inverse_frequencies(at)
            yield Hypothesis("layer-types-mixed", says, theirs)
    yield from (_other_exponents if spec.axes is None else _other_exponents_of_axes)(spec)
    yield from changed_fields(spec, length)
    yield Hypothesis("rotated-twice", "every angle is doubled", 2 * expected)


def _other_exponents(spec: RotarySpec) -> Iterator[Hypothesis]:
    index = torch.arange(spec.pairs, dtype=torch.float64)
    R, D = int(spec.rotary_dim), spec.head_dim
    forms = {
        "i/R instead of 2i/R": index / R,
        "4i/R instead of 2i/R": 4 * index / R,
        "2i/(R - 2) instead of 2i/R": 2 * index / max(R - 2, 1),
        "2(i + 1)/R instead of 2i/R": 2 * (index + 1) / R,
        "2·floor(i/2)/R instead of 2i/R": 2 * (index // 2) / R,
    }
    if R != D:
        forms[f"2i/D instead of 2i/R, with D = {D} and R = {R}"] = 2 * index / D
    for says, exponents in forms.items():
        yield Hypothesis("wrong-exponent", f"the exponent is {says}", spec.theta**-exponents)


def _other_exponents_of_axes(spec: RotarySpec) -> Iterator[Hypothesis]:
    owners = spec.axis_of_pair
    places = [(i, owners[:i].count(axis), owners.count(axis)) for i, axis in enumerate(owners)]
    for says, exponents in {
        "j/n for pair j of the n of an axis": [Fraction(j, n) for _, j, n in places],
        "2i/R for pair i of all": [Fraction(i, spec.pairs) for i, _, _ in places],
        "2j/R for pair j of an axis": [Fraction(j, spec.pairs) for _, j, _ in places],
        "2j/n for pair j of the n of an axis": [Fraction(2 * j, n) for _, j, n in places],
    }.items():
        other = replace(spec, axes=tuple(zip(owners, exponents, strict=True)), scaling=None)
        yield Hypothesis("wrong-exponent", f"the exponent is {says}", other.inverse_frequencies())


#: Values that configs have in the fields of rules, and as theta, the commonest first.
USUAL: Mapping[str, tuple[float, ...]] = {
    "factor": (1, 2, 4, 8, 16, 32, 40, 64),
    "original_length": (4_096, 8_192, 32_768, 2_048, 16_384, 65_536, 131_072, 262_144, 1_024),
    "beta_fast": (32, 64, 16),
    "beta_slow": (1, 2, 4),
    "low_freq_factor": (1, 2),
    "high_freq_factor": (4, 8),
}
THETAS = (1e4, 5e5, 1e6, 1e5, 5e6, 1e7, 8e6, 150_000.0, 160_000.0, 2e6, 1e8)


def changed_rules(rule: Scaling) -> Iterator[tuple[str, Scaling]]:
    """Yield a rule with one field changed, or two exchanged, and what was in words.

    The likeliest come first. Combinations that the rule refuses are left out.
    """
    if not is_dataclass(cast(Any, rule)):  # one of the user's own
        return
    changes: list[tuple[str, dict[str, Any]]] = []
    if isinstance(rule, LongRoPE):
        exchanged = {"short_factor": rule.long_factor, "long_factor": rule.short_factor}
        changes.append(("as if short_factor and long_factor were exchanged", exchanged))
    for each in fields(cast(Any, rule)):
        name, value = each.name, getattr(rule, each.name)
        others = [each.default] if isinstance(each.default, (int, float, type(None))) else []
        if isinstance(value, bool):
            others = [not value]
        elif name in USUAL and isinstance(value, (int, float)):
            others += [type(value)(other) for other in USUAL[name]]
        changes += [(f"as if {name} were {other!r}", {name: other}) for other in others]
    seen = {rule}
    for says, values in changes:
        with suppress(TypeError, ValueError):
            changed = replace(cast(Any, rule), **values)
            if changed not in seen:
                seen.add(changed)
                yield says, changed


@lru_cache(maxsize=16)  # a model has few ropes, and many layers
def changed_fields(spec: RotarySpec, length: int | None) -> tuple[Hypothesis, ...]:
    """Return the frequencies of a rule with one field misread, or of another model's theta."""
    rule = spec.scaling
    made = list(_misread_yarn(spec, rule)) if isinstance(rule, YaRN) else []
    changes: list[tuple[str, str, dict[str, Any]]] = []
    for says, changed in () if rule is None else changed_rules(rule):
        changes.append(("frequencies", says, {"scaling": changed}))
    for theta in THETAS:
        says = f"theta is {theta:.12g}, specified is {spec.theta:.12g}"
        changes.append(("theta", says, {"theta": theta}))
    for fault, says, values in changes:
        with suppress(ValueError, ArithmeticError):  # they do not fit together
            other = replace(spec, **values)
            made.append(Hypothesis(fault, says, other.inverse_frequencies(length)))
    own = spec.inverse_frequencies(length)
    return tuple(
        each for each in made if not torch.allclose(each.frequencies, own, rtol=1e-6, atol=0)
    )


def _misread_yarn(spec: RotarySpec, rule: YaRN) -> Iterator[Hypothesis]:
    """Yield blends by the formula of `YaRN`: of betas that it refuses, and of other frequencies."""
    if spec.axes is not None or spec.pairs < 2 or spec.theta <= 1:
        return
    plain = replace(spec, scaling=None).inverse_frequencies()
    base = NTKAware(rule.factor).larger_theta(spec.theta, spec.rotary_dim)
    ntk = replace(spec, scaling=None, theta=base).inverse_frequencies()
    R, L = spec.rotary_dim, rule.original_length
    index = torch.arange(spec.pairs, dtype=torch.float64)
    betas = (rule.beta_fast, rule.beta_slow)
    for says, slow, ends in (
        ("as if beta_fast and beta_slow were exchanged", plain / rule.factor, betas[::-1]),
        ("slow pairs have the base of NTKAware, instead of positions / factor", ntk, betas),
    ):
        low, high = (R * math.log(L / (2 * math.pi * b)) / (2 * math.log(spec.theta)) for b in ends)
        if rule.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, R - 1)
        g = ((index - low) / ((high - low) or 0.001)).clamp(0, 1)
        yield Hypothesis("frequencies", says, plain * (1 - g) + slow * g)


def half_precision_angles(frequencies: Tensor, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what was rounded, in words, and the angles (P, R/2) that result.

    frequencies: float64 (R/2,), exact. Every combination of rounded positions, frequencies and
    products is made, in bfloat16 and in float16.
    """
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        for rounded in range(1, 8):
            f = frequencies.to(dtype if rounded & 1 else torch.float32)
            p = positions.to(dtype if rounded & 2 else torch.float32)
            angles = p.to(torch.float64)[:, None] * f.to(torch.float64)
            if rounded & 4:
                angles = angles.to(dtype)
            parts = ("frequencies", "positions", "angles")
            said = " and ".join(part for bit, part in enumerate(parts) if rounded & 1 << bit)
            yield f"{said} are rounded to {name}", angles.to(torch.float64)


def fit_theta(frequencies: Tensor, exponents: Tensor | None = None) -> tuple[float, float, float]:
    """Return theta, a factor and the largest relative error of f_i = theta^(-e_i) / factor.

    frequencies: positive (R/2,). exponents: e (R/2,), None for 2i/R. Of one pair, nothing fits:
    nan, nan and infinity.
    """
    if len(frequencies) < 2:
        return math.nan, math.nan, math.inf
    logs = frequencies.log()
    if exponents is None:
        exponents = torch.arange(len(logs), dtype=torch.float64) / len(logs)
    centered = exponents - exponents.mean()
    slope = float((centered * logs).sum() / centered.square().sum())
    intercept = float(logs.mean() - slope * exponents.mean())
    error = (logs - slope * exponents - intercept).abs().max().item()
    theta, factor = (math.exp(min(x, 700.0)) for x in (-slope, -intercept))
    return theta, factor, error


def apart(value: float, other: float) -> str | None:
    """Return a number as short as may be, but never as another is written; None if it is that."""
    texts = (f"{rounded(value, tolerance):.12g}" for tolerance in (3e-5, 1e-6, 1e-8))
    return next((text for text in texts if text != f"{other:.12g}"), None)


def rounded(value: float, tolerance: float = 3e-5) -> float:
    """Return the shortest decimal number within a relative tolerance of the value."""
    for digits in range(1, 12):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short - value) <= tolerance * abs(value):
            return short
    return value
