"""Numbers, scores, p-values, counts, lists, time spans and tables as text.

A `Table` has two printers: HTML for the page, and rich for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.checks import joined
from ropewalk.lab.results import LengthBin, MetricFacts, Verdict
from ropewalk.lab.scoring.significance import OPEN

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MINUS = "−"
LANGUAGES = {"de": "German", "en": "English", "fr": "French", "cs": "Czech", "es": "Spanish"}
MOST_DIGITS = 6  # of a difference


def format_number(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """Return a number as text; an unknown one is a dash."""
    if value is None or value != value:
        return "–"
    return f"{value:{'+' if signed else ''},.{digits}f}".replace("-", MINUS)


def format_p_value(p: float) -> str:
    """Return a p-value with three decimals, or `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_count(n: int, one: str) -> str:
    """Return a count with its noun: `1 seed`, `3 seeds`, `29,000 pairs`."""
    return f"{n:,} {one}{'s' * (n != 1)}"


def code(name: str) -> str:
    """Mark a name in a sentence as code; `code_as_html` shows it so."""
    return f"`{name}`"


def code_list(names: Iterable[str]) -> str:
    """Join names as in a sentence, each marked as code."""
    return joined(map(code, names))


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


def bin_label(bin_: LengthBin) -> str:
    """Return a range of sentence lengths: `9–12`, or `9` if it is one length."""
    return str(bin_.first) if bin_.first == bin_.last else f"{bin_.first}–{bin_.last}"


def is_score(value: float, metric: MetricFacts) -> bool:
    """Return whether a score can have this value; all but losses are from 0 to 100."""
    return 0 <= value <= 100 if metric.higher_is_better else 0 <= value < inf


def column_title(metric: MetricFacts, split: str = "") -> str:
    """Return the title of a column: `BLEU test`, `exact match x2, %`."""
    title = f"{metric.name} {split}".strip()
    return f"{title}, {metric.unit}" if metric.unit else title


def format_score(value: float | None, metric: MetricFacts, digits: int | None = None) -> str:
    """Return a score with its unit: `41.4`, `85.0 %`."""
    text = format_number(value, metric.digits if digits is None else digits)
    return f"{text} {metric.unit}" if metric.unit and value is not None else text


def digits_of_difference(versus: Verdict, metric: MetricFacts) -> int:
    """Return the digits that a difference and its interval need, so that nothing is better by 0.0.

    A difference of exactly 0 needs no more digits than the metric has. An end of the interval that
    would be written as 0 needs one more.
    """
    digits, size = int(metric.digits), round(abs(versus.difference), MOST_DIGITS)
    while 0 < size < 10**-digits and digits < MOST_DIGITS:
        digits += 1
    ends = (round(end, MOST_DIGITS) for end in (versus.low, versus.high))
    near = any(end != 0 and round(end, digits) == 0 for end in ends)
    return digits + (near and digits < MOST_DIGITS)


class TestedDifference(NamedTuple):
    """A difference and its test as text, with the same digits on the page and in the terminal."""

    difference: str
    low: str
    high: str
    p: str


def tested_difference(versus: Verdict, metric: MetricFacts) -> TestedDifference:
    """Return a difference, its interval and its p (Holm) as text."""
    digits = digits_of_difference(versus, metric)
    difference, low, high = (
        format_number(value, digits, signed=True)
        for value in (versus.difference, versus.low, versus.high)
    )
    return TestedDifference(difference, low, high, format_p_value(versus.p_holm))


def verdict_text(versus: Verdict, other: str, metric: MetricFacts) -> str:
    """Return a verdict on a name in words: `better than b`, `equal to b within 1.0`, `open`."""
    if versus.is_difference:
        return f"{versus.verdict} than {other}"
    if versus.verdict == OPEN:
        return f"open: neither a difference from {other} nor equality is shown"
    return f"equal to {other} within {format_margin(versus, metric)}"


def format_margin(versus: Verdict, metric: MetricFacts) -> str:
    """Return the margin of a test with its unit: `1 BLEU`, `0.01`, `2 points`."""
    unit = {"bleu": " BLEU", "exact": " points"}.get(metric.key, "")
    return f"{versus.margin:g}{unit}"


@dataclass(frozen=True)
class TableCell:
    """The text of a cell, with details in small letters.

    notes: below it, such as the text of each seed.
    beside: in the same line.
    """

    text: str
    notes: tuple[str, ...] = ()
    beside: str = ""


@dataclass(frozen=True)
class Table:
    """Column titles and rows; a row has a cell for each column. The first column has names.

    columns: the titles.
    rows: cells, or their text.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell | str]]

    def cells(self) -> list[list[TableCell]]:
        """Return the rows as cells."""
        return [[TableCell(c) if isinstance(c, str) else c for c in row] for row in self.rows]

    def html(self, caption: str, labels: Mapping[str, str]) -> str:
        """Return the table as HTML; on a narrow page each row lists its cells with their titles.

        The ARIA roles make both layouts a table for screen readers. labels: the HTML of names that
        are in one of the first two columns.
        """
        head = "".join(
            f'<th scope="col" role="columnheader"{_kind(title == "encoding")}>'
            f"{escape(title).replace('_', '_<wbr>')}</th>"
            for title in self.columns
        )
        body = ""
        for row in self.cells():
            body += '<tr role="row">'
            for i, (cell, title) in enumerate(zip(row, self.columns, strict=True)):
                label = labels.get(cell.text) if i < 2 else None
                notes = " ".join(f"<span>{escape(note)}</span>" for note in cell.notes)
                detail = f'<span class="seeds">{notes}</span>' if notes else ""
                text = escape(cell.text) if label is None else label
                text += f" <small>{escape(cell.beside)}</small>" if cell.beside else ""
                if i == 0:
                    body += f'<th scope="row" role="rowheader">{text}{detail}</th>'
                else:
                    body += (
                        f'<td role="cell"{_kind(label is not None)} data-title="{escape(title)}">'
                        f"<div><span>{text}</span>{detail}</div></td>"
                    )
            body += "</tr>"
        return (
            f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
            '<table role="table">'
            f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
            f'<tbody role="rowgroup">{body}</tbody></table></div>'
        )

    def rich(self, title: str | None = None) -> RichTable:
        """Return the table for a terminal, without notes; its title stands above it."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for i, name in enumerate(self.columns):
            table.add_column(name, justify="right" if i else "left", no_wrap=not i)
        for row in self.cells():
            table.add_row(*(cell.text for cell in row))
        return table


def _kind(is_name: bool) -> str:
    return ' class="name"' * is_name
