"""Frequencies and angles, accurate to float32 rounding up to position 2^37.

Cosines of float32 products of position and frequency are off by up to 0.7 near position 10,000,000,
and cosines of float64 products by up to 2e-7 near 2^31. So a frequency f, in radians per position,
is stored as a fraction of a turn in fixed point,

    w = round(f / 2π · 2^64).

One full turn is 2^64. So overflow of position · w in 64-bit integers drops exactly the full turns,
and the fraction of a turn is left. The only error that grows with the position is from rounding w,
at most |position| · 2^-65 turns: 4e-10 radians at 2^31, 2e-4 at 2^50. Up to 2^37 this error is
below 3e-8, the rounding of cos and sin to float32. Positions beyond 2^37 raise no exception, for
two reasons. The error of 2e-4 at 2^50 is still smaller than the rounding of queries and keys in
bfloat16. And a check of positions on a GPU would have to wait for the GPU. Frequencies are computed
in decimal arithmetic. theta and the fields of a scaling rule are float64 numbers; they are
converted to decimals exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from typing import TypeAlias

import torch
from torch import Tensor

Axes: TypeAlias = tuple[tuple[int, Fraction | None], ...]
"""For each pair of dimensions: its position axis, and the exponent e of its frequency theta^-e.

Text has one position axis; M-RoPE has three: time, height and width. Without an exponent (None),
the frequency is 0: the pair does not rotate."""

# Limits of a frequency in radians per position. Between them, float64 can represent both the
# frequency and its wavelength.
LEAST, MOST = Decimal("1e-307"), Decimal("1e307")

RADIANS_PER_UNIT = 2 * math.pi / 2**64


def precision(theta: float) -> Context:
    """Return a decimal context of 60 digits, more if theta < 1."""
    # Without the Underflow trap, a frequency too small for a Decimal would become 0, and its pair
    # would not rotate.
    traps = [InvalidOperation, DivisionByZero, Overflow, Underflow]
    return Context(prec=60 + max(0, -Decimal(theta).adjusted()), traps=traps)


def powers(theta: float, exponents: Iterable[Fraction]) -> list[Decimal]:
    """Return theta^-e for each exponent e, to the precision of the current context."""
    base = Decimal(theta)
    return [base ** (Decimal(-e.numerator) / e.denominator) for e in exponents]


def to_fixed_point(frequencies: Iterable[Decimal]) -> tuple[int, ...]:
    """Return w of each frequency, in units of 2^-64 turns, wrapped to signed 64-bit integers."""
    two_pi = 2 * pi()
    units = [round(f / two_pi * 2**64) for f in frequencies]
    return tuple((w + 2**63) % 2**64 - 2**63 for w in units)


def cos_sin(
    positions: Tensor, frequencies: Tensor, amplitude: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Return amplitude · cos and amplitude · sin of each angle, float32, computed in float64.

    positions: (..., R/2), where R is rotary_dim: for each pair, the position on its axis (see
    `Axes`). frequencies: (..., R/2), int64 as `to_fixed_point` returns them, or float64 in radians
    per position if positions are continuous. With int64 and amplitude 1, the error is at
    most 1e-7 up to |position| = 2^31; beyond, see the module's docstring.
    """
    if frequencies.dtype == torch.int64:
        # Units are 2^-64 turns. Overflow drops full turns.
        units = positions.to(torch.int64) * frequencies
        angle = units.to(torch.float64) * RADIANS_PER_UNIT  # in [-π, π]
    else:
        angle = positions.to(torch.float64) * frequencies
    return (angle.cos() * amplitude).to(torch.float32), (angle.sin() * amplitude).to(torch.float32)


def standard_exponents(rotary_dim: int) -> tuple[Fraction, ...]:
    """Return 2i/R for pair i = 0 .. R/2 - 1 (RoFormer, arXiv 2104.09864, eq. 15)."""
    return tuple(Fraction(2 * i, rotary_dim) for i in range(rotary_dim // 2))


def pi() -> Decimal:
    """Return π to the precision of the current context (recipe of the `decimal` documentation)."""
    last, term, total = Decimal(0), Decimal(3), Decimal(3)
    n, n_step, d, d_step = 1, 0, 0, 24
    while total != last:
        last = total
        n, n_step = n + n_step, n_step + 8
        d, d_step = d + d_step, d_step + 32
        term = term * n / d
        total += term
    return total
