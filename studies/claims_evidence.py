"""How a claim is judged: one number with its interval, and the ranges that support or contradict.

No number is stored here: each is read from the committed results, or computed, at every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from common import RESULTS

from ropewalk.lab.report.verdicts import tests_against
from ropewalk.lab.results import EncodingResults, Results, Verdict, read_results

SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "open"
BLEU, TEXT, MASKED = "multi30k-cpu", "causal-lm", "masked-lm"
INFINITE = math.inf
UNITS = {"bleu": "BLEU", "loss": "nats", "exact": "points"}

Range = tuple[float, float]


@dataclass(frozen=True)
class Measured:
    """A number with its 95 % interval; it is alone where nothing varies.

    unit: written after it. link: the folder in results/, or the file, that it comes from. seeds: of
    how many models or rounds; 0 if none were trained or timed.
    """

    value: float
    low: float
    high: float
    unit: str
    link: str
    seeds: int = 0


@dataclass(frozen=True)
class Rule:
    """The ranges of an interval that decide.

    claimed: the value or bound that the claim is about. supports, contradicts: where the interval
    must lie. both: the verdict if it lies in both, since what is shown is within the margin.
    """

    claimed: float
    supports: Range
    contradicts: tuple[Range, ...]
    both: str = CONTRADICTED

    def verdict(self, found: Measured) -> str:
        """Return supported, contradicted or open."""
        supported = _inside(found, self.supports)
        contradicted = any(_inside(found, part) for part in self.contradicts)
        if supported and contradicted:
            return self.both
        return SUPPORTED if supported else CONTRADICTED if contradicted else OPEN


def _inside(found: Measured, part: Range) -> bool:
    return part[0] < found.low and found.high < part[1]


def above(bound: float, margin: float = 0.0) -> Rule:
    """Return the rule of a claim that a number is above a bound; near it is not above."""
    return Rule(bound, (bound, INFINITE), ((-INFINITE, bound + margin),))


def below(bound: float, margin: float = 0.0) -> Rule:
    """Return the rule of a claim that a number is below a bound; near it is not below."""
    return Rule(bound, (-INFINITE, bound), ((bound - margin, INFINITE),))


def harmless(margin: float) -> Rule:
    """Return the rule of a claim that something costs nothing that matters."""
    return Rule(0.0, (-INFINITE, margin), ((0.0, INFINITE),), SUPPORTED)


def alike(margin: float) -> Rule:
    """Return the rule of a claim that two things do equally well."""
    return Rule(0.0, (-margin, margin), ((-INFINITE, 0.0), (0.0, INFINITE)), SUPPORTED)


def size(claimed: float, tolerance: float) -> Rule:
    """Return the rule of a claim that a number has a size."""
    near = (claimed - tolerance, claimed + tolerance)
    return Rule(claimed, near, ((-INFINITE, claimed), (claimed, INFINITE)), SUPPORTED)


@dataclass(frozen=True)
class Further:
    """Another number about a claim, which decides nothing.

    With the unit of the claim's own number, it is judged by the claim's rule too.
    """

    label: str
    measured: Measured


@dataclass(frozen=True)
class Claim:
    """A claim of articles, and the one test that judges it.

    says: its sense, in the source's words. measured: what the number is, as the beginning of a
    sentence. decides: when the claim is supported and contradicted, in words. notes: sentences
    for the fold. post_hoc: whether the test was chosen after its number was known.
    """

    topic: str
    key: str
    says: str
    source: str
    measured: str
    decides: str
    rule: Rule
    measure: Callable[[], Measured]
    further: Callable[[], Sequence[Further]] = tuple
    notes: tuple[str, ...] = ()
    post_hoc: bool = True


@dataclass(frozen=True)
class Judged:
    """A claim with its number and verdict, and its further numbers with theirs, if any."""

    claim: Claim
    measured: Measured
    verdict: str
    further: tuple[tuple[Further, str | None], ...]

    def elsewhere(self) -> dict[str, list[Further]]:
        """Return the further numbers that are supported or contradicted and disagree."""
        found: dict[str, list[Further]] = {}
        for each, verdict in self.further:
            if verdict in (SUPPORTED, CONTRADICTED) and verdict != self.verdict:
                found.setdefault(verdict, []).append(each)
        return found


def judge(claim: Claim) -> Judged:
    """Return a claim's verdict, from the results as they are now."""
    found, rule = claim.measure(), claim.rule
    further = tuple(
        (each, rule.verdict(each.measured) if each.measured.unit == found.unit else None)
        for each in claim.further()
    )
    return Judged(claim, found, rule.verdict(found), further)


@cache
def held(folder: str) -> Results:
    """Read a folder's results."""
    return read_results(RESULTS / folder)


def row_of(folder: str, name: str) -> EncodingResults:
    """Return the row of an encoding."""
    return held(folder).row(name)


@cache
def tests_of(folder: str, other: str, split: str) -> dict[str, Verdict | None]:
    """Return the test of each encoding against another, which may not have been its baseline."""
    results = held(folder)
    names = [row.name for row in results.encodings]
    if other == names[0]:
        return {row.name: row.summary[split].versus_first for row in results.encodings}
    if other in results.against:
        return {row.name: row.summary[split].versus[other] for row in results.encodings}
    return dict(zip(names, tests_against(results, other, split), strict=True))


def gain(folder: str, name: str, other: str, split: str = "x1") -> Measured:
    """Return how much better an encoding is than another: a higher score, or a lower loss."""
    found = tests_of(folder, other, split)[name]
    if found is None:
        raise ValueError(f"{name} must have been tested against {other} on {folder}, {split}")
    metric, seeds = held(folder).tested, len(row_of(folder, name).cells)
    ends = (found.difference, found.low, found.high)
    value, low, high = ends if metric.higher_is_better else (-ends[0], -ends[2], -ends[1])
    return Measured(value, low, high, UNITS[metric.key], folder, seeds)


def loss_of(folder: str, name: str, other: str, split: str = "x1") -> Measured:
    """Return how much worse an encoding is than another."""
    return opposite(gain(folder, name, other, split))


def opposite(found: Measured) -> Measured:
    """Return the number of the difference the other way round."""
    return replace(found, value=-found.value, low=-found.high, high=-found.low)


def over(values: Sequence[float], unit: str, link: str) -> Measured:
    """Return the mean of some seeds or rounds, with the interval of Student's t."""
    data = torch.tensor(values, dtype=torch.float64)
    count, mean = len(values), float(data.mean())
    half = _student(count - 1) * float(data.std()) / math.sqrt(count)
    return Measured(mean, mean - half, mean + half, unit, link, count)


@cache
def _student(freedom: int) -> float:
    """Return the 97.5 % point of Student's t, by bisection of its distribution function."""
    half = torch.tensor(0.5 * freedom, dtype=torch.float64)
    scale = torch.exp(torch.lgamma(half + 0.5) - torch.lgamma(half)) / math.sqrt(freedom * math.pi)
    grid = torch.linspace(0, 60, 600_001, dtype=torch.float64)
    density = scale * (1 + grid.square() / freedom) ** (-0.5 * (freedom + 1))
    mass = torch.cumulative_trapezoid(density, grid)
    return float(grid[int((mass < 0.475).sum()) + 1])


def in_results(link: str) -> Path:
    """Return the path that a link of the page leads to."""
    return (RESULTS / link).resolve()
