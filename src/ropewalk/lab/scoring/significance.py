"""Whether one system's score differs from another's by more than chance.

A score is formed from sums over items of a few statistics: BLEU from ten of each sentence (see
`scoring.bleu`), a mean loss from each window's loss and tokens, exact match from ones and zeros.

Axes: N items (sentences, windows, examples), C statistics of each, Z training seeds, M resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.lab.scoring.bleu import bleu_from_statistics, bleu_statistics, check_lengths

#: Takes sums of statistics (..., C) to scores (...).
ScoreOf = Callable[[Tensor], Tensor]

BETTER, WORSE, NOT_SHOWN = "better", "worse", "no difference shown"

#: Items below which nothing is tested: resamples of so few have hardly another mean.
FEWEST = 10

# Items are weighed for this many resamples times items at once, to bound memory (32 MB).
CHUNK = 4_000_000


@dataclass(frozen=True)
class Comparison:
    """Mean score of the other system minus the first's, 95 % interval, two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class VersusFirst:
    """A `Comparison` with the first system, after Holm's correction over all the others."""

    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    verdict: str


def compare_statistics(
    first: Tensor,
    other: Tensor,
    score: ScoreOf,
    *,
    resamples: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Tell whether `other` differs from `first` in mean score, over items and over training seeds.

    Each system is its statistics (Z, N, C), whose sums `score` takes; their Z may differ. A
    resample draws the items with replacement, the same for both systems and all seeds (paired
    bootstrap, Koehn 2004), and each system's seeds with replacement. Three corrections make it
    hold for few seeds:

    - Z seeds drawn with replacement vary too little by (Z - 1) / Z: their part of a resample is
      widened by sqrt(Z / (Z - 1)) (Hesterberg 2015, "What teachers should know about the
      bootstrap").
    - Their spread is itself uncertain: that part is given Student's tails by sqrt(df / chi2(df)),
      df being the number of seeds less one, summed over the two systems.
    - What chance does to single items of single runs shows in both draws (Owen 2007, "The
      pigeonhole bootstrap"); the draw of seeds keeps it and the draw of items is narrowed by its
      variance.

    In simulations of BLEU (2 to 5 seeds, 100 to 400 sentences, seeds that matter little or much)
    systems alike come out different at p <= 0.05 in 4 to 6 % of 600 trials.

    p is two-sided, by the shift method (Noreen 1989; Riezler and Maxwell 2005): the share of
    resamples at least as far from the resamples' mean as the observed difference is from 0, with
    one added to both counts, so never 0. The interval is symmetric, of the same distances: it
    leaves out 0 where p < 0.05.

    Limits: a system with one seed adds no seed variance; with one seed each, the answer holds for
    these two trained models, not for the two encodings. The two systems' seeds are taken to spread
    about equally. They are not drawn in pairs, though the systems may share them: what a seed does
    to both alike is not credited, for caution. Less than some fifty items are too few.

    Raises:
        ValueError: no seed, no item, or not the same items in both.
    """
    for name, system in (("first", first), ("other", other)):
        if system.ndim != 3 or 0 in system.shape or system.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"{name} must be statistics (seeds, items, statistics) of the same items as first, "
                f"at least one of each, got shape {tuple(system.shape)}"
            )
    generator = torch.Generator().manual_seed(seed)
    difference, far = _resample(first, other, resamples, generator, score)
    p = (1 + int((far >= abs(difference)).sum())) / (resamples + 1)
    reach = torch.quantile(far, 0.95, interpolation="higher").item()
    return Comparison(difference, difference - reach, difference + reach, p)


def compare_systems(
    first: Sequence[Sequence[str]],
    other: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    resamples: int = 2_000,
    seed: int = 0,
    lowercase: bool = False,
) -> Comparison:
    """Compare BLEU by `compare_statistics`: each system is a list of hypotheses for each seed.

    Raises:
        ValueError: no seed, no sentence, or hypotheses that are not as many as the references.
    """
    return compare_statistics(
        _seed_statistics("first", first, references, lowercase),
        _seed_statistics("other", other, references, lowercase),
        bleu_from_statistics,
        resamples=resamples,
        seed=seed,
    )


def compare_with_first(
    systems: Sequence[Tensor | None],
    score: ScoreOf,
    *,
    higher_is_better: bool = True,
    resamples: int = 2_000,
    seed: int = 0,
) -> list[VersusFirst | None]:
    """Compare every system with the first, under Holm's correction over them all.

    Returns one row a system: None for the first, where a system, or the first, has none, and where
    there are fewer than ten items.
    """
    rows: list[VersusFirst | None] = [None] * len(systems)
    first = systems[0]
    compared, found = [], []
    for place, other in enumerate(systems):
        known = first is not None and other is not None and other.shape[1] >= FEWEST
        if place and known:
            assert first is not None
            assert other is not None
            compared.append(place)
            found.append(compare_statistics(first, other, score, resamples=resamples, seed=seed))
    for place, c, p in zip(compared, found, holm([c.p for c in found]), strict=True):
        gain = c.difference if higher_is_better else -c.difference
        rows[place] = VersusFirst(c.difference, c.low, c.high, c.p, p, verdict(gain, p))
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """Give Holm's step-down adjusted p-values (Holm 1979), in the order given.

    The k-th smallest of n is multiplied by n - k + 1, is at least the one before it, at most 1.
    """
    adjusted = [0.0] * len(p_values)
    floor = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = floor
    return adjusted


def verdict(gain: float, p_holm: float, alpha: float = 0.05) -> str:
    """Give what may be said of a gain, up or down: "better", "worse" or "no difference shown"."""
    if p_holm >= alpha or gain == 0:
        return NOT_SHOWN
    return BETTER if gain > 0 else WORSE


def _resample(
    first: Tensor, other: Tensor, resamples: int, generator: torch.Generator, score: ScoreOf
) -> tuple[float, Tensor]:
    """Give the observed difference, and how far each resample is from the resamples' mean (M,).

    `first` and `other` are statistics (Z, N, C); their Z may differ.
    """
    scores = _resampled_scores(torch.cat([first, other]), resamples, generator, score)
    first_scores, other_scores = scores.split([len(first), len(other)], dim=1)
    by_items = other_scores.mean(1) - first_scores.mean(1)
    variance = by_items.var().item()
    twice = _run_variance(first_scores) + _run_variance(other_scores)
    narrow = math.sqrt(max(0.0, 1 - twice / variance)) if variance > 0 else 0.0

    here, there = (score(system.sum(1)) for system in (other, first))
    by_seeds = _draw_seeds(here, resamples, generator) - _draw_seeds(there, resamples, generator)
    by_seeds *= _student(scores.shape[1] - 2, resamples, generator)
    resampled = narrow * by_items + by_seeds
    difference = (here.mean() - there.mean()).item()
    return difference, (resampled - resampled.mean()).abs()


def _resampled_scores(
    runs: Tensor, resamples: int, generator: torch.Generator, score: ScoreOf
) -> Tensor:
    """Give scores (M, Z) of each run's statistics (Z, N, C) on items drawn with replacement."""
    items = runs.shape[1]
    chunk = max(1, CHUNK // items)
    scores = []
    for start in range(0, resamples, chunk):
        count = min(chunk, resamples - start)
        drawn = torch.randint(items, (count, items), generator=generator)
        weights = torch.zeros(count, items, dtype=runs.dtype)
        weights.scatter_add_(1, drawn, torch.ones_like(weights))
        scores.append(score(torch.einsum("mn,znk->mzk", weights, runs)))
    return torch.cat(scores)


def _run_variance(scores: Tensor) -> float:
    """Give the variance that single runs bring into the mean over Z of resampled scores (M, Z)."""
    seeds = scores.shape[1]
    if seeds == 1:
        return 0.0
    apart = scores - scores.mean(1, keepdim=True)
    return apart.var(0).sum().item() / (seeds - 1) / seeds


def _draw_seeds(scores: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    """Give what drawing seeds with replacement adds to the mean of `scores` (Z,), widened: (M,)."""
    seeds = len(scores)
    widen = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 0.0
    drawn = torch.randint(seeds, (resamples, seeds), generator=generator)
    return widen * (scores[drawn].mean(1) - scores.mean())


def _student(freedom: int, count: int, generator: torch.Generator) -> Tensor:
    """Give factors (count,) that turn a normal variable into Student's t of `freedom` degrees."""
    if freedom == 0:
        return torch.zeros(count, dtype=torch.float64)
    normal = torch.randn(count, freedom, dtype=torch.float64, generator=generator)
    return (freedom / normal.square().sum(1)).sqrt()


def _seed_statistics(
    name: str, system: Sequence[Sequence[str]], references: Sequence[str], lowercase: bool
) -> Tensor:
    if not system:
        raise ValueError(f"{name} must have the hypotheses of at least one seed, received none")
    for hypotheses in system:
        check_lengths(**{name: hypotheses, "references": references})
    return torch.stack([bleu_statistics(h, references, lowercase=lowercase)[0] for h in system])
