"""How a claim is held against committed results: what they hold, and whether it is for or against.

Nothing here is remembered: each number is read from the results, or computed, whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common import RESULTS, Facts

from ropewalk.lab.report.formats import format_count, format_number, format_p_value
from ropewalk.lab.results import read_results
from ropewalk.lab.scoring.significance import BETTER, NOT_SHOWN
from ropewalk.lab.verdicts import add_verdicts

FOR, AGAINST, NEITHER = 1, -1, 0
HARMLESS = "not worse"
LEARNT = 50  # % exact, from which on a task counts as learnt
BLEU, TEXT, MASKED = "multi30k-cpu", "causal-lm", "masked-lm"
UNITS = {"bleu": "BLEU", "loss": "loss", "exact": "% exact"}
DIGITS = {"bleu": 1, "loss": 3, "exact": 1}


class Evidence(NamedTuple):
    """A measurement in words, whether it is for the claim, and its folder or file in results/.

    vote: None where it is there to be compared with, and decides nothing.
    """

    says: str
    vote: int | None
    link: str


def exists(folder: str) -> bool:
    """Tell whether a unit's results are committed."""
    return (RESULTS / folder).exists()


@cache
def held(folder: str, against: str | None = None) -> Facts:
    """Read a folder's results; with ``against``, every encoding tested against that one too."""
    results = read_results(RESULTS / folder)
    if against is not None and against not in (
        results["encodings"][0]["name"],
        *results.get("against", ()),
    ):
        add_verdicts(results, [against])
    return results


def row_of(folder: str, name: str, against: str | None = None) -> Facts:
    """Give the row of an encoding."""
    return next(row for row in held(folder, against)["encodings"] if row["name"] == name)


def difference(folder: str, name: str, other: str, split: str) -> Facts | None:
    """Give the test of an encoding against another; None if one of them has no score there."""
    summary = row_of(folder, name, other)["summary"][split]
    first = held(folder)["encodings"][0]["name"]
    found: Facts | None = summary["versus_first"] if other == first else summary["versus"][other]
    return found


def weighed(
    folder: str, name: str, other: str, split: str, wanted: str, within: float | None = None
) -> list[Evidence]:
    """Hold a tested difference against what a claim wants: better, worse, not worse, or none.

    within: a claim of no difference is supported, and one of a difference refuted, by an interval
    that stays within so much of 0.
    """
    if not exists(folder):
        return []
    found = difference(folder, name, other, split)
    if found is None:
        return []
    small = within is not None and max(abs(found["low"]), abs(found["high"])) <= within
    shown = found["verdict"] != NOT_SHOWN
    if held(folder)["tested_metric"] == "exact":  # two that fail alike show nothing
        small = small and row_of(folder, other)["summary"][split]["exact"]["mean"] >= LEARNT
    if wanted in (NOT_SHOWN, HARMLESS):
        harmless = wanted == HARMLESS and found["verdict"] == BETTER
        vote = FOR if harmless or (small and not shown) else AGAINST if shown else NEITHER
    elif shown:
        vote = FOR if found["verdict"] == wanted else AGAINST
    else:
        vote = AGAINST if small else NEITHER
    return [Evidence(_said(folder, name, other, split, found), vote, folder)]


def _said(folder: str, name: str, other: str, split: str, found: Facts) -> str:
    metric = held(folder)["tested_metric"]
    digits, unit = DIGITS[metric], UNITS[metric]
    gap, low, high = (
        format_number(found[key], digits, signed=True) for key in ("difference", "low", "high")
    )
    seeds = format_count(len(row_of(folder, name)["cells"]), "seed")
    p = format_p_value(found["p_holm"]).replace("<", "&lt;")
    equals = "" if p.startswith("&") else "= "
    place = f"{folder.removeprefix('claims/')}, {split}"
    return (
        f"`{name}` {gap} {unit} against `{other}` on {place} "
        f"({low} to {high}, p {equals}{p}, {seeds})"
    )


def by_seed(values: Sequence[float], digits: int = 2) -> str:
    """Write a value of each seed."""
    return " · ".join(format_number(value, digits) for value in values)


def bounded(values: Sequence[float], at_least: float, at_most: float) -> int:
    """Vote for if all reach ``at_least``, against if all are ``at_most`` or less."""
    if min(values) >= at_least:
        return FOR
    return AGAINST if max(values) <= at_most else NEITHER


def in_results(link: str) -> Path:
    """Give the path that a link of the page leads to."""
    return (RESULTS / link).resolve()
