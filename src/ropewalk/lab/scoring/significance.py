"""Tests whether one system's score differs from another's by more than chance.

Each item has a few statistics, and a score is computed from their sums over all items: BLEU from
ten statistics of each sentence (see `scoring.bleu`), a mean loss from the loss and the number of
tokens of each window, exact match from a 1 or 0 for each example.

Axes: N items (sentences, windows, examples), C statistics of each, Z training seeds, M resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ropewalk.bootstrap import Resampled, ScoreOf, distances, resample

BETTER, WORSE, EQUAL, OPEN = "better", "worse", "equal", "open"

#: Minimum number of items for `compare_with`. Resamples of fewer items vary too little.
FEWEST = 10

#: Number of resamples: enough that p near 0.05 has little noise (0.0015), and that p < 0.001 is
#: possible after Holm's correction for up to 20 comparisons (the smallest p is 1/20,001).
RESAMPLES = 20_000
LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Mean score of the other system minus the first's, 95 % interval, two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Versus(Comparison):
    """The comparison of one of several systems with the reference.

    difference, low, high, p: as in `Comparison`.
    p_holm: p after Holm's correction for the number of systems besides the reference.
    margin: the largest difference that does not matter.
    verdict: better or worse if p_holm is below 0.05. Otherwise equal if the interval lies within
        `margin`, and open if it does not.
    """

    p_holm: float
    margin: float
    verdict: str


def compare_statistics(
    first: Tensor,
    other: Tensor,
    score: ScoreOf,
    *,
    strata: Tensor | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Test whether `other` differs from `first` in mean score, over items and over training seeds.

    Each system is given by its statistics (Z, N, C); `score` takes their sums. Seeds are paired by
    design: both systems' models of a seed have the same order of data and the same initial weights
    of what they share, or are the same model scored in two ways. So the test is about the Z
    differences within a seed. Items that are alike, such as windows of one document, must be added
    up to one item before. A resample draws items with replacement, the same ones for both systems
    and all seeds (paired bootstrap, Koehn 2004), and differences of seeds with replacement. With
    few seeds, such resamples would show differences that do not exist, so the difference of a
    resample is

        observed difference + w · I + t · S

    - I: how much the draw of items changes the difference.
    - S: how much the draw of seeds changes it. Draws from Z seeds have only (Z - 1) / Z of the
      right variance, so S is multiplied by sqrt(Z / (Z - 1)) (Hesterberg 2015, "What teachers
      should know about the bootstrap").
    - t: sqrt(df / chi2(df)), a random factor, with df = Z - 1. The spread of a few seeds is only a
      rough estimate, and t gives S the tails of Student's distribution.
    - w: sqrt(max(0, 1 - V / variance of I)), where V is the variance of the interaction of seeds
      and items: a seed can be good at some items and bad at others. The variances of I and of S
      both contain V in expectation, so their sum counts it twice (Owen 2007, "The pigeonhole
      bootstrap"). The factor w removes it from I.

    In expectation, the variance of S contains V; but if the few differences happen to be nearly the
    same, the variance of S is smaller than V. Then V is not counted twice, and w removes too much.
    So a second test uses the observed difference + I. The larger p and the wider interval of the
    two are returned.

    p is two-sided, by the shift method (Noreen 1989; Riezler and Maxwell 2005): (1 + E) / (1 + M).
    E is the number of resamples whose difference is at least as far from the mean of all M
    differences as the observed difference is from 0. p is never 0, because 1 is added. The interval
    is symmetric. It is computed from the same resamples, so it excludes 0 if p < 0.05.

    strata: the group of each item, such as the source of a document; items are drawn within groups.

    Limits: with one seed, the result holds for these two trained models, not for the two encodings.
    With fewer than about fifty items, the test is unreliable. How often it calls equal systems
    different was simulated (`studies/rejections.py`).

    Raises:
        ValueError: if there is no seed or no item, or the numbers of seeds, items or statistics
            differ.
    """
    if first.ndim != 3 or 0 in first.shape or other.shape != first.shape:
        raise ValueError(
            "first and other must have the same shape (seeds, items, statistics), each at least "
            f"1, got {tuple(first.shape)} and {tuple(other.shape)}"
        )
    here, there = resample([first, other], resamples, seed, score, strata)
    return _compare(here, there, seed)


def compare_with(
    reference: int,
    systems: Sequence[Tensor | None],
    score: ScoreOf,
    *,
    margin: float,
    higher_is_better: bool = True,
    strata: Tensor | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Versus | None]:
    """Compare every system with the one at index `reference`, with Holm's correction for them all.

    margin: the largest difference that does not matter, as in `Versus`. The rest is as in
    `compare_statistics`. Returns one entry per system: None for the reference, for a system without
    statistics, and for all systems if the reference has no statistics or there are fewer than ten
    items.
    """
    rows: list[Versus | None] = [None] * len(systems)
    against = systems[reference]
    known = {i: each for i, each in enumerate(systems) if each is not None and i != reference}
    if against is None or against.shape[1] < FEWEST or not known:
        return rows
    first, *others = resample([against, *known.values()], resamples, seed, score, strata)
    found = [_compare(first, other, seed) for other in others]
    for place, c, p in zip(known, found, holm([c.p for c in found]), strict=True):
        judged = verdict(c, p, margin, higher_is_better=higher_is_better)
        rows[place] = Versus(**asdict(c), p_holm=p, margin=margin, verdict=judged)
    return rows


def by_document(statistics: Tensor, documents: Sequence[int]) -> Tensor:
    """Return statistics (Z, N, C) added up by the document of each item: (Z, documents, C)."""
    places = torch.tensor(documents).unique(return_inverse=True)[1]
    sums = statistics.new_zeros(len(statistics), int(places.max()) + 1, statistics.shape[-1])
    return sums.index_add(1, places, statistics)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values (Holm 1979), in the given order.

    The k-th smallest of n is multiplied by n - k + 1, replaced by the (k - 1)-th result if that is
    larger, and capped at 1.
    """
    adjusted = [0.0] * len(p_values)
    floor = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = floor
    return adjusted


def verdict(
    found: Comparison, p_holm: float, margin: float, *, higher_is_better: bool = True
) -> str:
    """Return the verdict on a comparison: "better", "worse", "equal" or "open"."""
    if p_holm < LEVEL and found.difference != 0:
        return BETTER if (found.difference > 0) == higher_is_better else WORSE
    return EQUAL if max(-found.low, found.high) <= margin else OPEN


def _compare(first: Resampled, other: Resampled, seed: int) -> Comparison:
    apart = Resampled(other.observed - first.observed, other.on_items - first.on_items)
    difference = apart.observed.mean().item()
    # Both tests give distances of the resampled differences from their mean.
    tests = distances(apart, torch.Generator().manual_seed(seed + 1))
    p = max((1 + int((far >= abs(difference)).sum())) / (len(far) + 1) for far in tests)
    half = max(_half_width(far) for far in tests)
    return Comparison(difference, difference - half, difference + half, p)


def _half_width(far: Tensor) -> float:
    """Return the half width of the interval: a larger difference has p below LEVEL; inf if none.

    far: distances of the resampled differences from their mean, `(M,)`.
    """
    # p < LEVEL if at most `allowed` distances are as large as the difference, or larger.
    allowed = math.ceil(LEVEL * (len(far) + 1)) - 2
    return math.inf if allowed < 0 else far.sort(descending=True).values[allowed].item()
