"""Resamples items and training seeds: how far scores move by chance.

Axes: N items, C statistics of each, Z training seeds, M resamples. `significance` says which
corrections are made, and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

#: Maps sums of statistics (..., C) to scores (...).
ScoreOf = Callable[[Tensor], Tensor]

# Limit on resamples × items that are weighted in one step: arrays of 32 MB.
CHUNK = 4_000_000


class Resampled(NamedTuple):
    """Scores of a system: observed (Z,), and on resampled items (M, Z)."""

    observed: Tensor
    on_items: Tensor


def resample(
    systems: Sequence[Tensor], resamples: int, seed: int, score: ScoreOf
) -> list[Resampled]:
    """Score every system's statistics (Z, N, C) on the same items, drawn with replacement."""
    generator = torch.Generator().manual_seed(seed)
    runs, items = torch.cat(list(systems)), systems[0].shape[1]
    chunk = max(1, CHUNK // items)
    scores = []
    for start in range(0, resamples, chunk):
        count = min(chunk, resamples - start)
        drawn = torch.randint(items, (count, items), generator=generator)
        weights = torch.zeros(count, items, dtype=runs.dtype)
        weights.scatter_add_(1, drawn, torch.ones_like(weights))
        scores.append(score(torch.einsum("mn,znk->mzk", weights, runs)))
    on_items = torch.cat(scores).split([len(system) for system in systems], dim=1)
    return [
        Resampled(score(system.sum(1)), each)
        for system, each in zip(systems, on_items, strict=True)
    ]


def distances(
    first: Resampled, other: Resampled, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return (M,) distances from the mean, with items and seeds drawn, and with items alone."""
    by_items = other.on_items.mean(1) - first.on_items.mean(1)
    variance = by_items.var().item()
    # The variance of the interaction, which the draw of seeds already contains.
    noise = _run_variance(first.on_items) + _run_variance(other.on_items)
    narrow = math.sqrt(max(0.0, 1 - noise / variance)) if variance > 0 else 0.0

    resamples, seeds = len(by_items), len(first.observed) + len(other.observed)
    by_seeds = _draw_seeds(other.observed, resamples, generator)
    by_seeds = by_seeds - _draw_seeds(first.observed, resamples, generator)
    by_seeds *= _student(seeds - 2, resamples, generator)
    both = narrow * by_items + by_seeds
    return (both - both.mean()).abs(), (by_items - by_items.mean()).abs()


def _run_variance(scores: Tensor) -> float:
    """Return how much variance the interaction of items and seeds adds to a mean over seeds.

    scores: (M, Z), on M resamples of the items with each of Z seeds.
    """
    seeds = scores.shape[1]
    if seeds == 1:
        return 0.0
    apart = scores - scores.mean(1, keepdim=True)
    return apart.var(0).sum().item() / (seeds - 1) / seeds


def _draw_seeds(scores: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    """Return deviations (M,): the mean of resampled seeds minus the mean of all seeds.

    They are widened by sqrt(Z / (Z - 1)).
    """
    seeds = len(scores)
    widen = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 0.0
    drawn = torch.randint(seeds, (resamples, seeds), generator=generator)
    return widen * (scores[drawn].mean(1) - scores.mean())


def _student(freedom: int, count: int, generator: torch.Generator) -> Tensor:
    """Return factors (count,) that turn a normal variable into Student's t of `freedom` degrees."""
    if freedom == 0:
        return torch.zeros(count, dtype=torch.float64)
    normal = torch.randn(count, freedom, dtype=torch.float64, generator=generator)
    return (freedom / normal.square().sum(1)).sqrt()
