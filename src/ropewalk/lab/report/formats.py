"""How reports write p-values, counts, lists, time spans, languages and ranges."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.files import Facts

MINUS = "−"
LANGUAGES = {"de": "German", "en": "English", "fr": "French", "cs": "Czech", "es": "Spanish"}


def format_number(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """Write a number for people; an unknown one is a dash."""
    if value is None or value != value:
        return "–"
    return f"{value:{'+' if signed else ''},.{digits}f}".replace("-", MINUS)


def format_p_value(p: float) -> str:
    """Write a p-value: three decimals, or that it is below them."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_count(n: int, one: str, many: str | None = None) -> str:
    """Write how many there are: ``1 seed``, ``3 seeds``, ``29,000 pairs``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_list(words: Iterable[str]) -> str:
    """Join words as a sentence does: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def format_duration(seconds: float) -> str:
    """Write a time span in its two largest units: ``2 h 5 min``, ``3 min 20 s``, ``12.4 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def language_name(code: str) -> str:
    """Give the English name of a language, or its code where the name is not known here."""
    return LANGUAGES.get(code, code)


def bin_label(bin_: Facts) -> str:
    """Write a range of sentence lengths: ``9–12``, or ``9`` where it holds one length."""
    return str(bin_["from"]) if bin_["from"] == bin_["to"] else f"{bin_['from']}–{bin_['to']}"
