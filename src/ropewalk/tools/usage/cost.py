"""The loss of a model, token by token, and how sure a difference of two losses is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropewalk.bootstrap import ratio_interval

BLOCK = 32  # predicted tokens that are drawn together, because neighbors are alike
LEAST_BLOCKS = 10  # fewer give intervals that are too narrow
DRAWS = 2_000


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each target in nats, `(B, S)`, from logits `(B, S, V)`.

    A negative target is not predicted; its loss is NaN.
    """
    flat = targets.flatten()
    losses = cross_entropy(logits.flatten(0, 1).float(), flat.clamp(min=0), reduction="none")
    return losses.where(flat >= 0, torch.nan).cpu().double().view(targets.shape)


def blocks_of(rows: int, predicted: int) -> int:
    """Return how many blocks there are in rows of this many predicted tokens."""
    return rows * -(-predicted // BLOCK)


def least_rows(length: int) -> int:
    """Return how many rows of this many tokens an interval needs."""
    return -(-LEAST_BLOCKS // blocks_of(1, length - 1))


def interval(differences: Tensor) -> tuple[float, float]:
    """Return the 95 % interval of the mean of differences `(B, S)`, without those that are NaN.

    Blocks of up to 32 consecutive tokens of a row are resampled, the same for each call.
    """
    parts = differences.split(BLOCK, 1)
    sums = torch.cat([part.nansum(1) for part in parts])
    counts = torch.cat([(~part.isnan()).sum(1) for part in parts])
    sums, counts = sums[counts > 0], counts[counts > 0].double()
    return ratio_interval(sums, counts, DRAWS)
