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

BETTER, WORSE, NOT_SHOWN = "better", "worse", "no difference shown"

#: Minimum number of items for `compare_with`. Resamples of fewer items vary too little.
FEWEST = 10

#: Number of resamples: enough that p near 0.05 has little noise (0.0015), and that p < 0.001 is
#: possible after Holm's correction for up to 20 comparisons (the smallest p is 1/20,001).
RESAMPLES = 20_000


@dataclass(frozen=True)
class Comparison:
    """Mean score of the other system minus the first's, 95 % interval, two-sided p-value.

    detectable: every difference greater than this has p < alpha, where alpha is an argument of
        `compare_statistics`.
    """

    difference: float
    low: float
    high: float
    p: float
    detectable: float


@dataclass(frozen=True)
class Versus(Comparison):
    """The comparison of one of several systems with the reference.

    difference, low, high, p: as in `Comparison`.
    p_holm: p after Holm's correction for n, the number of systems besides the reference.
    verdict: better, worse or no difference shown; it follows from p_holm.
    detectable: every difference greater than this is judged better or worse, because its p is below
        0.05 / n (Bonferroni's correction). Holm's correction is never stricter than Bonferroni's,
        so a smaller difference can be enough.
    """

    p_holm: float
    verdict: str


def compare_statistics(
    first: Tensor,
    other: Tensor,
    score: ScoreOf,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    alpha: float = 0.05,
) -> Comparison:
    """Test whether `other` differs from `first` in mean score, over items and over training seeds.

    Each system is given by its statistics (Z, N, C); `score` takes their sums. Z may differ
    between systems. A resample draws items with replacement, the same ones for both systems and all
    seeds (paired bootstrap, Koehn 2004), and each system's seeds with replacement. With few seeds,
    such resamples would show differences that do not exist, so the difference of a resample is

        observed difference + w · I + t · S

    - I: how much the draw of items changes the difference.
    - S: how much the draw of seeds changes the difference. Draws from Z seeds have only (Z - 1) / Z
      of the right variance, so each system's part is multiplied by sqrt(Z / (Z - 1)) (Hesterberg
      2015, "What teachers should know about the bootstrap").
    - t: sqrt(df / chi2(df)), a random factor; df is the sum of Z - 1 over both systems. The spread
      of a few seeds is only a rough estimate, and t gives S the tails of Student's distribution.
    - w: sqrt(max(0, 1 - V / variance of I)), where V is the variance of the interaction of seeds
      and items: a seed can be good at some items and bad at others. The variances of I and of S
      both contain V in expectation, so their sum counts it twice (Owen 2007, "The pigeonhole
      bootstrap"). The factor w removes it from I.

    In expectation, the variance of S contains V; but if the few seeds of a system happen to have
    nearly the same score, the variance of S is smaller than V. Then V is not counted twice, and w
    removes too much. So a second test uses the observed difference + I. The larger p and the wider
    interval of the two are returned.

    p is two-sided, by the shift method (Noreen 1989; Riezler and Maxwell 2005): (1 + E) / (1 + M).
    E is the number of resamples whose difference is at least as far from the mean of all M
    differences as the observed difference is from 0. p is never 0, because 1 is added. The interval
    is symmetric. It is computed from the same resamples, so it excludes 0 if p < 0.05.

    Simulations compared many pairs of equally good systems, with two to five seeds each. The spread
    of the seeds differed between settings. In each setting, the test found a difference in 1 to 5 %
    of the pairs. Most errors are in pairs in which the seeds of each system happen to differ
    little: among the one third of pairs whose seeds differ least, the rate is 4 to 14 %; among the
    others, 0 to 3 % (`studies/rejections.py`).

    alpha: sets `Comparison.detectable`.

    Limits: a system with one seed adds no seed variance; with one seed each, the result holds for
    these two trained models, not for the two encodings. The two systems' seeds are assumed to
    spread about equally. Seeds are not paired, even if both systems have the same ones. This is
    cautious: an effect that a seed has on both systems does not cancel out, so intervals are wider.
    With fewer than about fifty items, the test is unreliable.

    Raises:
        ValueError: if there is no seed or no item, or the numbers of items or of statistics differ.
    """
    systems = {"first": first, "other": other}
    for name, system in systems.items():
        if system.ndim != 3 or 0 in system.shape or system.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"{name} must have shape (seeds, items, statistics), each at least 1, and the same "
                f"items and statistics as the other system, got shape {tuple(system.shape)}"
            )
    here, there = resample([first, other], resamples, seed, score)
    return _compare(here, there, seed, alpha)


def compare_with(
    reference: int,
    systems: Sequence[Tensor | None],
    score: ScoreOf,
    *,
    higher_is_better: bool = True,
    resamples: int = RESAMPLES,
    seed: int = 0,
    alpha: float = 0.05,
) -> list[Versus | None]:
    """Compare every system with the one at index `reference`, with Holm's correction for them all.

    Returns one entry per system: None for the reference, for a system without statistics, and for
    all systems if the reference has no statistics or there are fewer than ten items.
    """
    rows: list[Versus | None] = [None] * len(systems)
    against = systems[reference]
    known = {i: each for i, each in enumerate(systems) if each is not None and i != reference}
    if against is None or against.shape[1] < FEWEST or not known:
        return rows
    first, *others = resample([against, *known.values()], resamples, seed, score)
    found = [_compare(first, other, seed, alpha / len(known)) for other in others]
    for place, c, p in zip(known, found, holm([c.p for c in found]), strict=True):
        gain = c.difference if higher_is_better else -c.difference
        rows[place] = Versus(**asdict(c), p_holm=p, verdict=verdict(gain, p, alpha))
    return rows


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


def verdict(gain: float, p_holm: float, alpha: float = 0.05) -> str:
    """Return the verdict on a gain: "better", "worse" or "no difference shown"."""
    if p_holm >= alpha or gain == 0:
        return NOT_SHOWN
    return BETTER if gain > 0 else WORSE


def _compare(first: Resampled, other: Resampled, seed: int, alpha: float) -> Comparison:
    difference = (other.observed.mean() - first.observed.mean()).item()
    # Both tests give distances of the resampled differences from their mean.
    tests = distances(first, other, torch.Generator().manual_seed(seed + 1))
    p = max((1 + int((far >= abs(difference)).sum())) / (len(far) + 1) for far in tests)
    half, least = (max(_threshold(far, level) for far in tests) for level in (0.05, alpha))
    return Comparison(difference, difference - half, difference + half, p, least)


def _threshold(far: Tensor, level: float) -> float:
    """Return the size that a difference must exceed for p < `level`; infinite if none is enough.

    far: distances of the resampled differences from their mean, `(M,)`.
    """
    # p < level if at most `allowed` distances are as large as the difference, or larger.
    allowed = math.ceil(level * (len(far) + 1)) - 2
    return math.inf if allowed < 0 else far.sort(descending=True).values[allowed].item()
