"""Intervals of paired differences: a bootstrap over passages, or over blocks of tokens.

The losses of neighboring tokens depend on each other, so single tokens are never drawn. Passages
are far apart in a long text. If there are few, their blocks are drawn: such an interval is about
these passages only, and is too narrow if dependence reaches farther than a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.bootstrap import mean_half_width
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

    The interval is symmetric, from resampled means of the units.
    """
    apart = first - second
    units, mean = _units(apart), float(apart.mean())
    if len(units) < FEWEST_UNITS:
        return Difference(mean, None, None)
    half = mean_half_width(units, DRAWS)
    return Difference(mean, mean - half, mean + half)


def _units(apart: Tensor) -> Tensor:
    passages, tokens = apart.shape
    if unit_of(passages) == PASSAGES:
        return apart.mean(1)
    blocks = apart.tensor_split(max(1, tokens // BLOCK), dim=1)
    return torch.cat([each.mean(1) for each in blocks])
