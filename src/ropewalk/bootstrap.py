"""The bootstrap: how far means, ratios and scores move by chance, from resamples of their parts.

Every draw is with replacement and comes from a generator with a fixed seed, so that the same values
always have the same interval.

Axes: N items, C statistics of each, Z training seeds, M resamples. `lab.scoring.significance` says
which corrections are made to scores of several seeds, and why.
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
    """Scores of each seed: on the items themselves (Z,), and on resampled items (M, Z)."""

    observed: Tensor
    on_items: Tensor


def mean_half_width(values: Tensor, resamples: int) -> float:
    """Return the half width of a symmetric 95 % interval of the mean of at least two values (N,).

    As wide as the resampled means (Efron 1979), widened as Student's t is, because few values vary
    too little.
    """
    generator = torch.Generator().manual_seed(0)
    away = mean_deviations(values, resamples, generator)
    away *= student_factors(len(values) - 1, resamples, generator)
    return float(away.abs().quantile(0.95))


def ratio_interval(above: Tensor, below: Tensor, resamples: int) -> tuple[float, float]:
    """Return the 95 % interval of sum(above) / sum(below), both (N,), with items drawn together.

    The percentile bootstrap: Efron and Tibshirani 1993, chapter 13.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(above), (resamples, len(above)), generator=generator)
    ratios = above[drawn].sum(1) / below[drawn].sum(1)
    low, high = torch.quantile(ratios, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def resample(
    systems: Sequence[Tensor],
    resamples: int,
    seed: int,
    score: ScoreOf,
    strata: Tensor | None = None,
) -> list[Resampled]:
    """Score every system's statistics (Z, N, C) on the same items, drawn with replacement.

    strata: the group of each item, (N,). As many items are drawn in each group as it has.
    """
    generator = torch.Generator().manual_seed(seed)
    runs, items = torch.cat(list(systems)), systems[0].shape[1]
    groups = torch.zeros(items) if strata is None else strata
    places = [(groups == group).nonzero().flatten() for group in groups.unique()]
    chunk = max(1, CHUNK // items)
    scores = []
    for start in range(0, resamples, chunk):
        count = min(chunk, resamples - start)
        drawn = torch.cat(
            [at[torch.randint(len(at), (count, len(at)), generator=generator)] for at in places], 1
        )
        weights = torch.zeros(count, items, dtype=runs.dtype)
        weights.scatter_add_(1, drawn, torch.ones_like(weights))
        scores.append(score(torch.einsum("mn,znk->mzk", weights, runs)))
    on_items = torch.cat(scores).split([len(system) for system in systems], dim=1)
    return [
        Resampled(score(system.sum(1)), each)
        for system, each in zip(systems, on_items, strict=True)
    ]


def distances(differences: Resampled, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return (M,) distances from the mean, with items and seeds drawn, and with items alone."""
    by_items = differences.on_items.mean(1)
    variance = by_items.var().item()
    # The variance of the interaction, which the draw of seeds already contains.
    noise = _run_variance(differences.on_items)
    narrow = math.sqrt(max(0.0, 1 - noise / variance)) if variance > 0 else 0.0

    resamples, seeds = differences.on_items.shape
    by_seeds = mean_deviations(differences.observed, resamples, generator)
    by_seeds *= student_factors(seeds - 1, resamples, generator)
    both = narrow * by_items + by_seeds
    return (both - both.mean()).abs(), (by_items - by_items.mean()).abs()


def mean_deviations(values: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    """Return deviations (M,): the mean of resampled values (N,) minus the mean of all values.

    They are widened by sqrt(N / (N - 1)): resamples have only (N - 1) / N of the right variance.
    """
    count = len(values)
    widen = math.sqrt(count / (count - 1)) if count > 1 else 0.0
    drawn = torch.randint(count, (resamples, count), generator=generator)
    return widen * (values[drawn].mean(1) - values.mean())


def student_factors(freedom: int, count: int, generator: torch.Generator) -> Tensor:
    """Return factors (count,) that turn a normal variable into Student's t of `freedom` degrees."""
    if freedom == 0:
        return torch.zeros(count, dtype=torch.float64)
    normal = torch.randn(count, freedom, dtype=torch.float64, generator=generator)
    return (freedom / normal.square().sum(1)).sqrt()


def _run_variance(scores: Tensor) -> float:
    """Return how much variance the interaction of items and seeds adds to a mean over seeds.

    scores: (M, Z), on M resamples of the items with each of Z seeds.
    """
    seeds = scores.shape[1]
    if seeds == 1:
        return 0.0
    apart = scores - scores.mean(1, keepdim=True)
    return apart.var(0).sum().item() / (seeds - 1) / seeds
