"""The tables of a comparison in a terminal, and its tests as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ropewalk.lab.report.findings import without_result
from ropewalk.lab.report.formats import (
    Table,
    code,
    column_title,
    format_number,
    tested_difference,
    verdict_text,
)
from ropewalk.lab.report.tables import format_memory, interval_note, trials_tables
from ropewalk.lab.results import EncodingResults, MetricFacts, Results, Verdict


def print_table(console: Console, results: Results) -> None:
    """Print the scores of each encoding, the tests and the cost."""
    rows = results.encodings
    console.print()
    for tried in trials_tables(results).values():
        console.print(tried.rich())
    _print_scores(console, results)
    for row in rows:
        for split in results.splits:
            summary = row.summary[split]
            versus = {rows[0].name: summary.versus_first, **summary.versus}
            for other, verdict in versus.items():
                if verdict is not None:
                    line = _comparison(results, row.name, split, other, verdict)
                    console.print(line, highlight=False)
    notes = [*without_result(results), interval_note(results)]
    if len(results.config.seeds) == 1 and len(rows) > 1:
        notes.append("One seed: this is about these trained models, not about the encodings.")
    for note in filter(None, notes):
        console.print(note, highlight=False)
    console.print()
    cost = [
        [
            row.name,
            format_number(row.validation_loss.mean, 3),
            f"{row.parameters:,}",
            f"{format_memory(row.peak_memory_bytes.mean)} MiB",
        ]
        for row in rows
    ]
    console.print(Table(["encoding", "validation loss", "parameters", "peak memory"], cost).rich())
    for name, signature in results.signatures.items():
        console.print(f"{name} signature: {signature}", highlight=False)


def print_summary(console: Console, all_results: Sequence[Results]) -> None:
    """Print the headline score of each task and encoding, on the first and the last split."""
    names = list(dict.fromkeys(row.name for each in all_results for row in each.encodings))
    lines = []
    for results in all_results:
        metric, rows = results.headline_metric, {r.name: r for r in results.encodings}
        ends = (results.splits[0], results.splits[0 if results.is_translation else -1])
        for split in dict.fromkeys(ends):
            cells = [_score(rows[name], split, metric) if name in rows else "" for name in names]
            lines.append([results.task, column_title(metric, split), *cells])
    console.print()
    console.print(Table(["task", "score", *names], lines).rich())


def _print_scores(console: Console, results: Results) -> None:
    """Print a row for each encoding: all scores of the first split, the headline of the others."""
    head, *others = results.splits
    first, *more = results.metrics
    translated = results.is_translation
    several = len(results.config.seeds) > 1 or translated
    at_head, elsewhere = [(head, metric) for metric in more], [(split, first) for split in others]
    title, places = None, at_head + elsewhere
    columns = ["encoding", column_title(first, head) if translated else head]
    columns += ["each seed"] if several else []
    if translated:
        columns += [*(m.name for m in more), *(column_title(first, split) for split in others)]
    else:
        assert results.lengths is not None
        unit, trained = results.lengths.unit, results.lengths.trained
        title = f"{column_title(first)}; x1 is {trained} {unit}, the trained length"
        places = elsewhere + at_head
        columns += [*others, *(column_title(metric, head) for metric in more)]
    lines = []
    for row in results.encodings:
        values = row.summary[head].spread(first.key).values
        seeds = []
        for cell, value in zip(row.cells, values, strict=True):
            text = "none" if value is None else format_number(value, first.digits)
            seeds.append("diverged" if cell.status == "diverged" else text)
        scores = [_score(row, split, metric) for split, metric in places]
        of_seeds = [" ".join(seeds)] * several
        lines.append([row.name, _score(row, head, first), *of_seeds, *scores])
    console.print(Table(columns, lines).rich(title))


def _comparison(results: Results, name: str, split: str, other: str, versus: Verdict) -> str:
    told = tested_difference(versus, results.tested)
    verdict = verdict_text(versus, code(other), results.tested)
    return (
        f"{code(name)} on {code(split)}: {told.difference} {results.tested.name} against "
        f"{code(other)}, 95% interval {told.low} to {told.high}, p (Holm) {told.p}: {verdict}"
    )


def _score(row: EncodingResults, split: str, metric: MetricFacts) -> str:
    summary = row.summary[split]
    spread = summary.spread(metric.key)
    if all(value is None for value in spread.values) and summary.no_result is not None:
        return "no result"
    return format_number(spread.mean, metric.digits)
