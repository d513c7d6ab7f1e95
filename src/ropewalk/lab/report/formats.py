"""Numbers, p-values, counts, lists, time spans, languages and ranges as text."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from html import escape
from math import isfinite

from ropewalk.files import Facts

MINUS = "−"
LANGUAGES = {"de": "German", "en": "English", "fr": "French", "cs": "Czech", "es": "Spanish"}


def format_number(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """Return a number as text; an unknown one is a dash."""
    if value is None or value != value:
        return "–"
    return f"{value:{'+' if signed else ''},.{digits}f}".replace("-", MINUS)


def format_threshold(value: float, digits: int) -> str:
    """Return a number rounded up, so that whatever is above the text is above the number."""
    if not isfinite(value):
        return format_number(value, digits)
    unit = Decimal(1).scaleb(-digits)
    return format_number(float(Decimal(repr(value)).quantize(unit, ROUND_CEILING)), digits)


def format_p_value(p: float) -> str:
    """Return a p-value with three decimals, or `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_count(n: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 seed`, `3 seeds`, `29,000 pairs`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_list(words: Iterable[str]) -> str:
    """Join words as in a sentence: `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def code(name: str) -> str:
    """Mark a name in a sentence as code; `code_as_html` and the READMEs show it so."""
    return f"`{name}`"


def code_list(names: Iterable[str]) -> str:
    """Join names as in a sentence, each marked as code."""
    return format_list(map(code, names))


def code_as_html(text: str) -> str:
    """Escape a sentence and put the names that are marked as code in code elements."""
    parts = map(escape, text.split("`"))
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def format_duration(seconds: float) -> str:
    """Return a time span in its two largest units: `2 h 5 min`, `3 min 20 s`, `12.4 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the name is not in the table."""
    return LANGUAGES.get(code, code)


def bin_label(bin_: Facts) -> str:
    """Return a range of sentence lengths: `9–12`, or `9` if it is one length."""
    return str(bin_["from"]) if bin_["from"] == bin_["to"] else f"{bin_['from']}–{bin_['to']}"
