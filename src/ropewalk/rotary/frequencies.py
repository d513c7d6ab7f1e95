"""Frequencies and angles, without rounding error that grows with the position.

A float32 product of position and frequency has lost the whole angle by position 10,000,000, and
the cosine of a float64 product is off by 1e-7 at 2^31. So a frequency is kept as a fraction of a
turn in fixed point,

    w_i = round(theta^(-2i/R) / 2π · 2^64),

and position · w_i in 64-bit integers is the fraction of a turn that remains after all full turns,
for full turns are just what overflows. The one error is that of rounding w_i, at most
|position| · 2^-65 turns: 4e-10 radians at 2^31.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import torch
from torch import Tensor

RADIANS_PER_UNIT = 2 * math.pi / 2**64


@lru_cache(maxsize=256)
def turns_per_position(rotary_dim: int, theta: float) -> tuple[int, ...]:
    """w_i of each pair, in units of 2^-64 turns, wrapped: R/2 signed 64-bit integers."""
    with localcontext(_context(theta)):
        two_pi = 2 * _pi()
        units = [round(f / two_pi * 2**64) for f in _exact_frequencies(rotary_dim, theta)]
    return tuple((w + 2**63) % 2**64 - 2**63 for w in units)


def inverse_frequencies(rotary_dim: int, theta: float) -> Tensor:
    """theta^(-2i/R), radians per position of each pair i, correctly rounded: float64 (R/2,)."""
    with localcontext(_context(theta)):
        exact = [float(f) for f in _exact_frequencies(rotary_dim, theta)]
    return torch.tensor(exact, dtype=torch.float64, device="cpu")


def tables(positions: Tensor, turns: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The cos and sin of every pair's angle at every position, within 1e-7 up to |position| = 2^31.

    positions: integers (..., S); turns: R/2 of them, from `turns_per_position`.
    Returns two float32 tensors (..., S, R/2) on the device of `positions`.
    """
    # Apple's GPUs have no float64.
    device = torch.device("cpu") if positions.device.type == "mps" else positions.device
    w = torch.tensor(turns, dtype=torch.int64, device=device)
    phase = positions.to(device, torch.int64).unsqueeze(-1) * w
    angle = phase.to(torch.float64) * RADIANS_PER_UNIT  # in [-π, π]
    cos, sin = angle.cos().to(torch.float32), angle.sin().to(torch.float32)
    return cos.to(positions.device), sin.to(positions.device)


def _exact_frequencies(rotary_dim: int, theta: float) -> list[Decimal]:
    """theta^(-2i/R) for i = 0 .. R/2 - 1, to the precision of the current context."""
    base = Decimal(theta)
    return [base ** (Decimal(-2 * i) / rotary_dim) for i in range(rotary_dim // 2)]


def _context(theta: float) -> Context:
    """60 digits after the point; 2^-64 takes 20, and where theta < 1 there are more before it."""
    return Context(prec=60 + max(0, -Decimal(theta).adjusted()))


def _pi() -> Decimal:
    """π to the precision of the current context (recipe of the `decimal` documentation)."""
    last, term, total = Decimal(0), Decimal(3), Decimal(3)
    n, n_step, d, d_step = 1, 0, 0, 24
    while total != last:
        last = total
        n, n_step = n + n_step, n_step + 8
        d, d_step = d + d_step, d_step + 32
        term = term * n / d
        total += term
    return total
