"""What was measured: which scores a run has, how they are written, which way is better."""

from __future__ import annotations

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.scoring import bleu
from ropewalk.lab.tasks import CLASSES

MOST_DIGITS = 6  # of a difference

# Of results that were written when translation was the only task, and do not say.
_TRANSLATION: list[Facts] = [
    {"key": "bleu", "name": "BLEU", "floor": 5},
    {"key": "chrf", "name": "chrF"},
]
_USUAL: Facts = {"unit": "", "higher_is_better": True, "digits": 1, "floor": None, "solved": None}


def brevity_penalty(score: Facts) -> float | None:
    """Give the factor that punishes short output in a translation's BLEU, where it is known."""
    if "statistics" not in score:
        return None
    return bleu.brevity_penalty(CLASSES["translation"].statistics_of(score).sum(0)).item()


def metrics(results: Facts) -> list[Facts]:
    """Give the scores of a run, the headline first: key, name, unit, digits, what is better."""
    return [_USUAL | each for each in results.get("metrics", _TRANSLATION)]


def headline_metric(results: Facts) -> Facts:
    """Give the score that a run is judged by."""
    return metrics(results)[0]


def tested_metric(results: Facts) -> Facts:
    """Give the score whose differences are tested: the headline's, or one it is made from."""
    key = results.get("tested_metric", metrics(results)[0]["key"])
    return next(each for each in metrics(results) if each["key"] == key)


def is_translation(results: Facts) -> bool:
    """Tell whether sentences were translated, which have languages, lengths and wordings."""
    return bool(results.get("task", "translation") == "translation")


def column_title(metric: Facts, split: str = "") -> str:
    """Write the title of a column: ``BLEU test``, ``exact match x2, %``."""
    title = f"{metric['name']} {split}".strip()
    return f"{title}, {metric['unit']}" if metric["unit"] else title


def format_score(value: float | None, metric: Facts, digits: int | None = None) -> str:
    """Write a score with its unit: ``41.4``, ``85.0 %``."""
    text = format_number(value, metric["digits"] if digits is None else digits)
    return f"{text} {metric['unit']}" if metric["unit"] and value is not None else text


def digits_of_difference(versus: Facts, metric: Facts) -> int:
    """Give the digits that a difference needs, so that none is called better by 0.0.

    Where there is no difference at all, there is nothing to tell more closely.
    """
    digits, size = int(metric["digits"]), round(abs(versus["difference"]), MOST_DIGITS)
    while 0 < size < 10**-digits and digits < MOST_DIGITS:
        digits += 1
    return digits
