"""The table of a comparison in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ropewalk.lab.report import tables, tuned
from ropewalk.lab.report.caveats import interval_note
from ropewalk.lab.report.findings import without_result
from ropewalk.lab.report.formats import (
    code,
    column_title,
    format_number,
    format_p_value,
    format_threshold,
    is_possible,
)
from ropewalk.lab.results import CellResults, EncodingResults, MetricFacts, Results, Verdict
from ropewalk.lab.scoring.significance import NOT_SHOWN


def print_table(console: Console, results: Results) -> None:
    """Print the scores of each encoding, the tests and the cost."""
    rows, splits = results.encodings, results.splits
    cost = _table("encoding", "validation loss", "parameters", "peak memory")
    for row in rows:
        cost.add_row(
            row.name,
            format_number(row.validation_loss.mean, 3),
            f"{row.parameters:,}",
            f"{tables.format_memory(row.peak_memory_bytes.mean)} MiB",
        )
    console.print()
    for tried in (tuned.training_trials(results), tuned.decoding_trials(results)):
        if tried is not None:
            console.print(_plain(tried))
    console.print(_scores(results))
    for row in rows:
        for split in splits:
            summary = row.summary[split]
            versus = {rows[0].name: summary.versus_first, **summary.versus}
            for other, found in versus.items():
                if found is not None:
                    line = _comparison(results, row.name, split, other, found)
                    console.print(line, highlight=False)
    notes = [*without_result(results), interval_note(results)]
    if len(results.config.seeds) == 1 and len(rows) > 1:
        notes.append("One seed: this is about these trained models, not about the encodings.")
    for note in filter(None, notes):
        console.print(note, highlight=False)
    console.print()
    console.print(cost)
    for name, signature in results.signatures.items():
        console.print(f"{name} signature: {signature}", highlight=False)


def print_summary(console: Console, all_results: Sequence[Results]) -> None:
    """Print the headline score of each task and encoding, on the first and the last split."""
    names = list(dict.fromkeys(row.name for each in all_results for row in each.encodings))
    table = _table("task", "score", *names)
    for results in all_results:
        metric, rows = results.headline_metric, {r.name: r for r in results.encodings}
        splits = [results.splits[0]]
        if not results.is_translation:
            splits = list(dict.fromkeys((splits[0], results.splits[-1])))
        for split in splits:
            cells = [_score(rows[name], split, metric) if name in rows else "" for name in names]
            table.add_row(results.task, column_title(metric, split), *cells)
    console.print()
    console.print(table)


def _plain(table: tables.Table) -> Table:
    shown = _table(*table.columns)
    for row in table.rows:
        shown.add_row(*(cell.main for cell in row))
    return shown


def _scores(results: Results) -> Table:
    """Return a row for each encoding: all scores of the first split, the headline of the others."""
    head, *others = results.splits
    first, *more = results.metrics
    by_length = not results.is_translation
    several = len(results.config.seeds) > 1 or not by_length
    columns = ["encoding", head if by_length else column_title(first, head)]
    columns += ["each seed"] if several else []
    if by_length:
        columns += [*others, *(column_title(metric, head) for metric in more)]
    else:
        columns += [*(m.name for m in more), *(column_title(first, split) for split in others)]
    table = _table(*columns)
    if by_length:
        assert results.lengths is not None
        unit, trained = results.lengths.unit, results.lengths.trained
        table.title = f"{column_title(first)}; x1 is {trained} {unit}, the trained length"
        table.title_justify = "left"
    for row in results.encodings:
        cells = [row.name, _score(row, head, first, 1)]
        if several:
            values = row.summary[head].spread(first.key).values
            cells.append(
                " ".join(
                    _seed_score(cell, value, first.digits)
                    for cell, value in zip(row.cells, values, strict=True)
                )
            )
        at_head = [_score(row, head, metric, 1) for metric in more]
        elsewhere = [_score(row, split, first, 1) for split in others]
        table.add_row(*cells, *(elsewhere + at_head if by_length else at_head + elsewhere))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, title in enumerate(columns):
        table.add_column(title, justify="right" if i else "left", no_wrap=not i)
    return table


def _comparison(results: Results, name: str, split: str, other: str, versus: Verdict) -> str:
    tested = results.tested
    verdict: str = versus.verdict
    digits = tested.digits + 1
    if verdict != NOT_SHOWN:
        verdict = f"{verdict} than {code(other)}"
    elif (least := tables.least_shown(versus)) is not None:
        limit = format_threshold(least, digits)
        counts = f"a difference above {limit} counts as better or worse"
        verdict += f" ({counts if is_possible(least, tested) else tables.NO_SCORE})"
    return (
        f"{code(name)} on {code(split)}: {versus.difference:+.{digits}f} {tested.name} "
        f"against {code(other)}, 95% interval {versus.low:+.{digits}f} to "
        f"{versus.high:+.{digits}f}, p (Holm) {format_p_value(versus.p_holm)}: {verdict}"
    )


def _score(row: EncodingResults, split: str, metric: MetricFacts, more: int = 0) -> str:
    summary = row.summary[split]
    found = summary.spread(metric.key)
    if all(value is None for value in found.values) and summary.no_result is not None:
        return "no result"
    return format_number(found.mean, metric.digits + more)


def _seed_score(cell: CellResults, value: float | None, digits: int) -> str:
    if cell.status == "diverged":
        return "diverged"
    return "none" if value is None else format_number(value, digits)
