"""Frequencies and angles that common mistakes produce, to be compared with measured angles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec

HALF_DTYPES = (torch.bfloat16, torch.float16)


class Hypothesis(NamedTuple):
    """Frequencies (R/2,) that a mistake would give: its fault, and what it is in words."""

    fault: str
    says: str
    frequencies: Tensor


def frequency_hypotheses(
    spec: RotarySpec, others: Mapping[str, RotarySpec], length: int | None
) -> Iterator[Hypothesis]:
    """Yield the frequencies that a wrong reading of a config would give, the likeliest first."""
    expected = spec.inverse_frequencies(length)
    if spec.scaling is not None:
        plain = replace(spec, scaling=None).inverse_frequencies()
        name = type(spec.scaling).__name__
        yield Hypothesis("rule-ignored", f"frequencies are those without {name}", plain)
        ratio = torch.where(plain != 0, expected / plain, 1.0)
        yield Hypothesis("rule-applied-twice", f"{name} is applied twice", expected * ratio)
        factor = getattr(spec.scaling, "factor", None)
        if factor is not None:
            says = f"{name} is applied, and positions are divided by its factor {factor:g} too"
            yield Hypothesis("rule-applied-twice", says, expected / factor)
    for name, other in others.items():
        if other != spec:
            says = f"frequencies are those of {name}"
            yield Hypothesis("layer-types-mixed", says, _of_other(other, length))
    if spec.axes is None:
        yield from _exponents(spec)


def _of_other(other: RotarySpec, length: int | None) -> Tensor:
    """Return the frequencies of another layer, at its rule's own length if none is known."""
    if other.needs_length and length is None:
        length = int(getattr(other.scaling, "original_length", 1))
    return other.inverse_frequencies(length if other.needs_length else None)


def _exponents(spec: RotarySpec) -> Iterator[Hypothesis]:
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


def half_precision_angles(frequencies: Tensor, positions: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what was rounded, in words, and the angles (P, R/2) that result.

    frequencies: float64 (R/2,), exact. Every combination of rounded positions, frequencies and
    products is made, in bfloat16 and in float16.
    """
    for dtype in HALF_DTYPES:
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


def fit_theta(frequencies: Tensor) -> tuple[float, float, float]:
    """Return theta, a factor and the largest relative error of f_i = theta^(-2i/R) / factor.

    frequencies: positive (R/2,), of at least two pairs.
    """
    logs = frequencies.log()
    index = torch.arange(len(logs), dtype=torch.float64)
    centered = index - index.mean()
    slope = float((centered * logs).sum() / centered.square().sum())
    intercept = float(logs.mean() - slope * index.mean())
    error = (logs - slope * index - intercept).abs().max().item()
    return math.exp(-slope * len(logs)), math.exp(-intercept), error


def rounded(value: float, tolerance: float = 3e-5) -> float:
    """Return the shortest decimal number within a relative tolerance of the value."""
    for digits in range(1, 12):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short - value) <= tolerance * abs(value):
            return short
    return value
