"""The scores of a run, how they are written, and which direction is better."""

from __future__ import annotations

from math import inf, isfinite

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.scoring import bleu
from ropewalk.lab.tasks import CLASSES

MOST_DIGITS = 6  # of a difference

# For results that have no field `metrics`: they were written when translation was the only task.
_TRANSLATION: list[Facts] = [
    {"key": "bleu", "name": "BLEU", "floor": 5},
    {"key": "chrf", "name": "chrF"},
]
_USUAL: Facts = {"unit": "", "higher_is_better": True, "digits": 1, "floor": None, "solved": None}


def brevity_penalty(score: Facts) -> float | None:
    """Return the brevity penalty in a translation's BLEU, or None if it is not known."""
    if "statistics" not in score:
        return None
    return bleu.brevity_penalty(CLASSES["translation"].statistics_of(score).sum(0)).item()


def metrics(results: Facts) -> list[Facts]:
    """Return the scores of a run, the headline first: key, name, unit, digits, what is better."""
    return [_USUAL | each for each in results.get("metrics", _TRANSLATION)]


def headline_metric(results: Facts) -> Facts:
    """Return the score that a run is judged by."""
    return metrics(results)[0]


def tested_metric(results: Facts) -> Facts:
    """Return the score whose differences are tested: the headline, or the score it comes from."""
    key = results.get("tested_metric", metrics(results)[0]["key"])
    return next(each for each in metrics(results) if each["key"] == key)


def is_translation(results: Facts) -> bool:
    """Return whether the task is translation, which has languages and sentence lengths."""
    return bool(results.get("task", "translation") == "translation")


def is_possible(difference: float, metric: Facts) -> bool:
    """Return whether scores can differ so much; all but losses are on a scale of 0 to 100."""
    return difference <= 100 if metric["higher_is_better"] else isfinite(difference)


def is_score(value: float, metric: Facts) -> bool:
    """Return whether a score can have this value; all but losses are from 0 to 100."""
    return 0 <= value <= 100 if metric["higher_is_better"] else 0 <= value < inf


def column_title(metric: Facts, split: str = "") -> str:
    """Return the title of a column: `BLEU test`, `exact match x2, %`."""
    title = f"{metric['name']} {split}".strip()
    return f"{title}, {metric['unit']}" if metric["unit"] else title


def format_score(value: float | None, metric: Facts, digits: int | None = None) -> str:
    """Return a score with its unit: `41.4`, `85.0 %`."""
    text = format_number(value, metric["digits"] if digits is None else digits)
    return f"{text} {metric['unit']}" if metric["unit"] and value is not None else text


def digits_of_difference(versus: Facts, metric: Facts) -> int:
    """Return the digits that a difference and its interval need, so that nothing is better by 0.0.

    A difference of exactly 0 needs no more digits than the metric has. An end of the interval that
    would be written as 0 needs one more.
    """
    digits, size = int(metric["digits"]), round(abs(versus["difference"]), MOST_DIGITS)
    while 0 < size < 10**-digits and digits < MOST_DIGITS:
        digits += 1
    ends = (round(versus[end], MOST_DIGITS) for end in ("low", "high"))
    near = any(end != 0 and round(end, digits) == 0 for end in ends)
    return digits + (near and digits < MOST_DIGITS)
