"""Intervals of paired differences: a bootstrap over passages, or over blocks of tokens.

The losses of neighboring tokens depend on each other, so single tokens are never drawn. Passages
are far apart in a long text. If there are few, their blocks are drawn: such an interval is about
these passages only, and is too narrow if dependence reaches farther than a block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.tools.loss.facts import Difference

PASSAGES, BLOCKS = "passages", "blocks"
FEWEST_PASSAGES = 8
FEWEST_UNITS = 4
BLOCK = 32  # tokens
DRAWS = 4_000


def unit_of(passages: int) -> str:
    """Return what intervals are drawn from."""
    return PASSAGES if passages >= FEWEST_PASSAGES else BLOCKS


def difference(first: Tensor, second: Tensor) -> Difference:
    """Return the mean of first - second, losses of the same tokens (P, T), with its interval.

    The interval is symmetric. It is as wide as the resampled means of the units (Efron 1979),
    widened as Student's t is, because few units vary too little.
    """
    apart = first - second
    units = _units(apart)
    mean, count = float(apart.mean()), len(units)
    if count < FEWEST_UNITS:
        return Difference(mean, None, None)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(count, (DRAWS, count), generator=generator)
    away = math.sqrt(count / (count - 1)) * (units[drawn].mean(1) - units.mean())
    normal = torch.randn(DRAWS, count - 1, dtype=torch.float64, generator=generator)
    away *= ((count - 1) / normal.square().sum(1)).sqrt()
    half = float(away.abs().quantile(0.95))
    return Difference(mean, mean - half, mean + half)


def _units(apart: Tensor) -> Tensor:
    passages, tokens = apart.shape
    if unit_of(passages) == PASSAGES:
        return apart.mean(1)
    blocks = apart.tensor_split(max(1, tokens // BLOCK), dim=1)
    return torch.cat([each.mean(1) for each in blocks])
