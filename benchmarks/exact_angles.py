"""Exact frequencies of every rule, written from their sources, and cos and sin by mpmath."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mpmath
import torch
from far_ropes import HEAD_DIM, Tables
from torch import Tensor

from ropewalk import scaling


def exact(frequencies: Iterable[Any], positions: Tensor) -> Tables:
    """Return cos and sin of positions · frequencies from 50 digits, rounded once to float64."""
    frequencies = list(frequencies)
    with mpmath.workdps(50):
        both = [[mpmath.cos_sin(m * f) for f in frequencies] for m in positions.tolist()]
        numbers = [[[float(value) for value in pair] for pair in row] for row in both]
    cos, sin = torch.tensor(numbers, dtype=torch.float64).unbind(-1)
    return cos, sin


def exact_frequencies(theta: float, rule: Any = None, length: int | None = None) -> list[Any]:
    """Return theta^(-2i/R) in 50 digits, changed by a rule as its source says."""
    with mpmath.workdps(50):
        base = mpmath.mpf(theta)
        if rule is not None:
            return SOURCES[type(rule)](rule, base, length)
        return plain(base)


def plain(base: Any) -> list[Any]:
    """base^(-2i/R)."""
    return [base ** (-mpmath.mpf(2 * i) / HEAD_DIM) for i in range(HEAD_DIM // 2)]


def linear(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2306.15595, eq. 3."""
    return [f / mpmath.mpf(rule.factor) for f in plain(base)]


def ntk(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 15 and 16; the dynamic one as in transformers."""
    s = mpmath.mpf(rule.factor)
    if isinstance(rule, scaling.DynamicNTK):
        s = s * max(length or 0, rule.original_length) / rule.original_length - (s - 1)
    return plain(base * s ** (mpmath.mpf(HEAD_DIM) / (HEAD_DIM - 2)))


def yarn(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2309.00071, with the band as jquesnelle/yarn finds it."""

    def pair(rotations: float) -> Any:
        wavelength = mpmath.mpf(rule.original_length) / (2 * mpmath.pi * mpmath.mpf(rotations))
        return HEAD_DIM * mpmath.log(wavelength) / (2 * mpmath.log(base))

    low, high = pair(rule.beta_fast), pair(rule.beta_slow)
    if rule.truncate:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, HEAD_DIM - 1)
    slow = [min(max((i - low) / (high - low), 0), 1) for i in range(HEAD_DIM // 2)]
    s = mpmath.mpf(rule.factor)
    return [f * (1 - g) + f / s * g for f, g in zip(plain(base), slow, strict=True)]


def longrope(rule: Any, base: Any, length: int | None) -> list[Any]:
    """modeling_phi3.py: beyond the original length, the long list."""
    long = (length or 0) > rule.original_length
    divisors = rule.long_factor if long else rule.short_factor
    return [f / mpmath.mpf(d) for f, d in zip(plain(base), divisors, strict=True)]


def llama3(rule: Any, base: Any, length: int | None) -> list[Any]:
    """meta-llama/llama-models, apply_scaling."""
    low, high = mpmath.mpf(rule.low_freq_factor), mpmath.mpf(rule.high_freq_factor)
    scaled = []
    for f in plain(base):
        rotations = rule.original_length * f / (2 * mpmath.pi)
        smooth = min(max((rotations - low) / (high - low), 0), 1)
        scaled.append((1 - smooth) * f / mpmath.mpf(rule.factor) + smooth * f)
    return scaled


def proportional(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2410.06205, section 5."""
    rotated = int(rule.fraction * HEAD_DIM // 2)
    kept = [f / mpmath.mpf(rule.factor) for f in plain(base)[:rotated]]
    return kept + [mpmath.mpf(0)] * (HEAD_DIM // 2 - rotated)


SOURCES: dict[type[scaling.Scaling], Callable[[Any, Any, int | None], list[Any]]] = {
    scaling.Linear: linear,
    scaling.NTKAware: ntk,
    scaling.DynamicNTK: ntk,
    scaling.YaRN: yarn,
    scaling.LongRoPE: longrope,
    scaling.Llama3: llama3,
    scaling.Proportional: proportional,
}
SHORT, LONG = (tuple(1 + i * step for i in range(HEAD_DIM // 2)) for step in (0.05, 1.0))
RULE_CASES: list[tuple[float, scaling.Scaling | None, int | None]] = [  # theta, rule, length
    (10_000.0, None, None),
    (500_000.0, None, None),
    (10_000.0, scaling.Linear(4.0), None),
    (10_000.0, scaling.NTKAware(4.0), None),
    (10_000.0, scaling.DynamicNTK(2.0, 4_096), 32_768),
    (10_000.0, scaling.YaRN(40.0, 4_096, mscale=1.0, mscale_all_dim=0.707), None),
    (150_000.0, scaling.YaRN(32.0, 4_096, truncate=False), None),
    (10_000.0, scaling.LongRoPE(SHORT, LONG, 4_096, factor=32.0), 131_072),
    (500_000.0, scaling.Llama3(8.0, 1.0, 4.0, 8_192), None),
    (1_000_000.0, scaling.Proportional(0.25, 8.0), None),
]
