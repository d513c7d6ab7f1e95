"""Exact frequencies of every rule, and cos and sin, by mpmath."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mpmath
import torch
from far_ropes import HEAD_DIM, Tables
from torch import Tensor

from ropewalk import scaling
from ropewalk.rotary.config.rope_fields import write_scaling

sys.path.append(str(Path(__file__).parents[1] / "conformance"))
from scaling_formulas import scaled_frequencies


def exact(frequencies: Iterable[Any], positions: Tensor) -> Tables:
    """Return cos and sin of positions · frequencies from 50 digits, rounded once to float64."""
    frequencies = list(frequencies)
    with mpmath.workdps(50):
        both = [[mpmath.cos_sin(m * f) for f in frequencies] for m in positions.tolist()]
        numbers = [[[float(value) for value in pair] for pair in row] for row in both]
    cos, sin = torch.tensor(numbers, dtype=torch.float64).unbind(-1)
    return cos, sin


def exact_frequencies(
    theta: float, rule: scaling.Scaling | None = None, length: int | None = None
) -> list[Any]:
    """Return theta^(-2i/R) in 50 digits, changed by a rule as its source says."""
    with mpmath.workdps(50):
        return scaled_frequencies(write_scaling(rule), theta, HEAD_DIM, length)


SHORT, LONG = (tuple(1 + i * step for i in range(HEAD_DIM // 2)) for step in (0.05, 1.0))
RULE_CASES: list[tuple[float, scaling.Scaling | None, int | None]] = [  # theta, rule, length
    (10_000.0, None, None),
    (500_000.0, None, None),
    (10_000.0, scaling.Linear(4.0), None),
    (10_000.0, scaling.NTKAware(4.0), None),
    (20_000.0, scaling.MixedNTK(8.0, mixed_b=0.625), None),
    (10_000.0, scaling.DynamicNTK(2.0, 4_096), 32_768),
    (10_000.0, scaling.QwenNTK(8_192), 32_768),
    (10_000.0, scaling.YaRN(40.0, 4_096, mscale=1.0, mscale_all_dim=0.707), None),
    (150_000.0, scaling.YaRN(32.0, 4_096, truncate=False), None),
    (10_000.0, scaling.LongRoPE(SHORT, LONG, 4_096, factor=32.0), 131_072),
    (500_000.0, scaling.Llama3(8.0, 1.0, 4.0, 8_192), None),
    (1_000_000.0, scaling.Proportional(0.25, 8.0), None),
]
