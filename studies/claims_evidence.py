"""How a claim is checked against committed results: the measurements, and how each one votes.

No number is stored here: each is read from the results, or computed, at every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common import RESULTS

from ropewalk.lab.report.formats import (
    format_count,
    format_number,
    format_p_value,
)
from ropewalk.lab.report.verdicts import tests_against
from ropewalk.lab.results import EncodingResults, Results, Verdict, read_results
from ropewalk.lab.scoring.significance import BETTER, EQUAL

FOR, AGAINST, NEITHER = 1, -1, 0
HARMLESS = "not worse"
LEARNT = 50  # % exact: from here on a task counts as learned
BLEU, TEXT, MASKED = "multi30k-cpu", "causal-lm", "masked-lm"
UNITS = {"bleu": "BLEU", "loss": "loss", "exact": "% exact"}
DIGITS = {"bleu": 1, "loss": 3, "exact": 1}


class Evidence(NamedTuple):
    """A measurement in words, its vote on the claim, and its folder or file in results/.

    vote: None if it is there for comparison and decides nothing.
    """

    says: str
    vote: int | None
    link: str


def exists(folder: str) -> bool:
    """Return whether a unit's results are committed."""
    return (RESULTS / folder).exists()


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


def difference(folder: str, name: str, other: str, split: str) -> Verdict | None:
    """Return the test of an encoding against another, or None if one of them has no score."""
    return tests_of(folder, other, split)[name]


def weighed(
    folder: str, name: str, other: str, split: str, wanted: str, within: float | None = None
) -> list[Evidence]:
    """Compare a tested difference with what a claim wants: better, worse, not worse, or none.

    within: if no difference is shown and the interval stays this close to 0, it supports a claim of
    no difference, and contradicts a claim of a difference. A shown difference whose mean is this
    close to 0 decides nothing about a claim of a difference.
    """
    if not exists(folder):
        return []
    found = difference(folder, name, other, split)
    if found is None:
        return []
    small = within is not None and max(abs(found.low), abs(found.high)) <= within
    shown = found.is_difference
    if held(folder).tested_metric == "exact":  # two encodings that both fail show nothing
        mean = row_of(folder, other).summary[split].spread("exact").mean
        small = small and mean is not None and mean >= LEARNT
    if wanted in (EQUAL, HARMLESS):
        harmless = wanted == HARMLESS and found.verdict == BETTER
        vote = FOR if harmless or (small and not shown) else AGAINST if shown else NEITHER
    elif shown and within is not None and abs(found.difference) <= within:
        vote = NEITHER
    elif shown:
        vote = FOR if found.verdict == wanted else AGAINST
    else:
        vote = AGAINST if small else NEITHER
    return [Evidence(_said(folder, name, other, split, found, within), vote, folder)]


def _said(
    folder: str, name: str, other: str, split: str, found: Verdict, within: float | None
) -> str:
    metric = held(folder).tested_metric
    digits, unit = DIGITS[metric], UNITS[metric]
    gap, low, high = (
        format_number(value, _digits(value, digits, within), signed=True)
        for value in (found.difference, found.low, found.high)
    )
    seeds = format_count(len(row_of(folder, name).cells), "seed")
    p = format_p_value(found.p_holm).replace("<", "&lt;")
    equals = "" if p.startswith("&") else "= "
    place = f"{folder.removeprefix('claims/')}, {split}"
    return (
        f"`{name}` {gap} {unit} against `{other}` on {place} "
        f"({low} to {high}, p {equals}{p}, {seeds})"
    )


def _digits(value: float, digits: int, limit: float | None) -> int:
    """Return enough digits to show on which side of ±`limit` a value is."""
    if limit is None:
        return digits
    while (abs(value) <= limit) != (round(abs(value), digits) <= limit):
        digits += 1
    return digits


def by_seed(values: Sequence[float], digits: int = 2) -> str:
    """Return the values of the seeds as text."""
    return " · ".join(format_number(value, digits) for value in values)


def bounded(values: Sequence[float], at_least: float, at_most: float) -> int:
    """Vote for if all values are at least `at_least`, against if all are at most `at_most`."""
    if min(values) >= at_least:
        return FOR
    return AGAINST if max(values) <= at_most else NEITHER


def in_results(link: str) -> Path:
    """Return the path that a link of the page leads to."""
    return (RESULTS / link).resolve()
