"""The tables of a comparison as text in cells; the report and the README only format them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ropewalk.lab.report.formats import (
    bin_label,
    brevity_penalty,
    column_title,
    digits_of_difference,
    format_duration,
    format_number,
    format_p_value,
    format_threshold,
    is_possible,
)
from ropewalk.lab.results import EncodingResults, LengthBin, MetricFacts, Results, Spread, Verdict
from ropewalk.lab.scoring.significance import NOT_SHOWN

_COMPARED = ("95 % interval", "p (Holm)", "verdict")


@dataclass(frozen=True)
class TableCell:
    """The text of a cell; `seeds` has the text of each seed, in small below `main`."""

    main: str
    seeds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Column titles and rows; a row has a cell for each column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def main_table(results: Results) -> Table:
    """Return a row for each encoding: the first test split, the other splits, loss and cost.

    Without other splits, a translation shows the longest sentences of the first one instead.
    """
    split, *others = results.splits
    titles = [column_title(metric, split) for metric in results.metrics]
    columns = ["encoding", *titles, *_comparison_columns(results)]
    columns += [column_title(results.headline_metric, other) for other in others]
    if not others and (bins := _bins(results, split)):
        columns.append(f"BLEU {bin_label(bins[-1])} words")
    columns += ["validation loss", "parameters", "extra parameters", "peak memory, MiB"]
    return Table(tuple(columns), tuple(_row(results, row) for row in results.encodings))


def splits_table(results: Results) -> Table:
    """Return a row for each further split and encoding: scores and test against the baseline."""
    rows = tuple(
        (TableCell(split), _name(row), *_split_cells(results, row, split))
        for split in results.splits[1:]
        for row in results.encodings
    )
    titles = (column_title(metric) for metric in results.metrics)
    return Table(("split", "encoding", *titles, *_comparison_columns(results)), rows)


def against_table(results: Results, name: str) -> Table:
    """Return a row for each test split and encoding: the test against the encoding `name`."""
    metric = results.tested
    rows = tuple(
        (
            TableCell(split),
            TableCell(row.name),
            *_versus_cells(results, row.summary[split].versus.get(name)),
        )
        for split in results.splits
        for row in results.encodings
        if row.name != name
    )
    difference = f"difference in {metric.name}"
    return Table(("split", "encoding", difference, *_COMPARED), rows)


def length_table(results: Results, split: str) -> Table:
    """Return BLEU of each encoding by the length of the source: the mean and every seed."""
    bins = results.length_bins[split]
    columns = ("encoding", *(f"{bin_label(b)} words ({b.sentences:,} sentences)" for b in bins))
    rows = []
    for row in results.encodings:
        cells = [_length_cell(row, split, place) for place in range(len(bins))]
        rows.append((_name(row), *cells))
    return Table(columns, tuple(rows))


def multiples_table(results: Results) -> Table:
    """Return the headline score of each encoding at each length, from the trained length on."""
    metric, lengths = results.headline_metric, results.lengths
    assert lengths is not None
    columns = ("encoding", *(f"{n:,} {lengths.unit} ({s})" for s, n in lengths.of.items()))
    rows = [
        (_name(row), *(_score(row, split, metric) for split in lengths.of))
        for row in results.encodings
    ]
    return Table(columns, tuple(rows))


def runs_table(results: Results) -> Table:
    """Return a row for each training: how it ended, its cost and its scores."""
    splits = results.splits
    columns = [
        "encoding",
        "seed",
        "outcome",
        "steps",
        "training time",
        "peak memory, MiB",
        "validation loss",
    ]
    for split in splits:
        columns += [column_title(metric, split) for metric in results.metrics]
        columns += [f"brevity penalty on {split}"] if results.is_translation else []
        columns.append(f"{'decoding' if results.is_translation else 'scoring'} time on {split}")
    rows = []
    for row in results.encodings:
        for cell in row.cells:
            texts = [str(cell.seed), cell.status, f"{cell.steps:,}"]
            texts += [
                format_duration(cell.train_seconds),
                format_memory(cell.peak_memory_bytes),
                format_number(cell.validation_loss, 3),
            ]
            for split in splits:
                score = cell.scores[split]
                texts += [format_number(score.score(m.key), m.digits + 1) for m in results.metrics]
                if results.is_translation:
                    texts.append(format_number(brevity_penalty(score), 3))
                spent = score.decode_seconds
                texts.append("–" if spent is None else format_duration(spent))
            rows.append((TableCell(row.name), *map(TableCell, texts)))
    return Table(tuple(columns), tuple(rows))


def format_memory(size: float | None) -> str:
    """Return an amount of memory in MiB as text."""
    return format_number(None if size is None else size / 2**20, 0)


#: Stands for a threshold that no pair of scores can exceed.
NO_SCORE = "no score would count"


def least_shown(versus: Verdict) -> float | None:
    """Return the threshold: a larger observed difference counts as better or worse.

    None if a difference was shown, or if the threshold is 0, because each item has the same score
    in both.
    """
    return versus.detectable or None if versus.verdict == NOT_SHOWN else None


def _row(results: Results, row: EncodingResults) -> tuple[TableCell, ...]:
    split, *others = results.splits
    diverged = _diverged(row)
    cells = [_name(row), *_split_cells(results, row, split)]
    cells += [_score(row, other, results.headline_metric) for other in others]
    if not others and _bins(results, split):
        cells.append(_length_cell(row, split, -1))
    cells.append(_score_cell(row.validation_loss, diverged, 3))
    cells += [TableCell(f"{row.parameters:,}"), TableCell(f"{row.extra_parameters:+,}")]
    peaks = row.peak_memory_bytes
    each = () if peaks.mean is None else _seeds(format_memory(v) for v in peaks.values)
    cells.append(TableCell(format_memory(peaks.mean), each))
    return tuple(cells)


def _name(row: EncodingResults) -> TableCell:
    return TableCell(row.name, _seeds(f"seed {cell.seed}" for cell in row.cells))


def _seeds(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the text of each seed; none for one seed, because the mean says the same."""
    values = tuple(texts)
    return values if len(values) > 1 else ()


def _split_cells(results: Results, row: EncodingResults, split: str) -> list[TableCell]:
    cells = [_score(row, split, metric) for metric in results.metrics]
    if len(results.encodings) > 1:
        cells += _comparison_cells(results, row, row.summary[split].versus_first)
    return cells


def _score(row: EncodingResults, split: str, metric: MetricFacts) -> TableCell:
    summary = row.summary[split]
    spread = summary.spread(metric.key)
    if summary.no_result is not None and all(value is None for value in spread.values):
        return TableCell("no result")
    return _score_cell(spread, _diverged(row), metric.digits)


def _bins(results: Results, split: str) -> tuple[LengthBin, ...]:
    return results.length_bins.get(split, ())


def _diverged(row: EncodingResults) -> list[bool]:
    return [cell.status == "diverged" for cell in row.cells]


def _length_cell(row: EncodingResults, split: str, place: int) -> TableCell:
    bins = [cell.scores[split].by_length for cell in row.cells]
    return _seeds_cell([scores[place].bleu if scores else None for scores in bins], 1)


def _comparison_columns(results: Results) -> list[str]:
    first = results.encodings[0].name
    if len(results.encodings) < 2:
        return []
    return [f"difference from {first}", *_COMPARED]


def _score_cell(spread: Spread, diverged: list[bool], digits: int) -> TableCell:
    """Return the mean and every seed, with a dagger after those that diverged."""
    seeds = tuple(
        f"{format_number(value, digits)}{' †' if gone else ''}"
        for value, gone in zip(spread.values, diverged, strict=True)
    )
    return (
        TableCell(format_number(spread.mean, digits), seeds)
        if len(seeds) > 1
        else TableCell(seeds[0])
    )


def _seeds_cell(values: list[float | None], digits: int, mean: float | None = None) -> TableCell:
    known = [value for value in values if value is not None]
    if mean is None and known and len(known) == len(values):
        mean = sum(known) / len(known)
    return TableCell(
        format_number(mean, digits), _seeds(format_number(value, digits) for value in values)
    )


def _comparison_cells(
    results: Results, row: EncodingResults, versus: Verdict | None
) -> list[TableCell]:
    if row is results.encodings[0]:
        return [TableCell("–"), TableCell("–"), TableCell("–"), TableCell("baseline")]
    return _versus_cells(results, versus)


def _versus_cells(results: Results, versus: Verdict | None) -> list[TableCell]:
    if versus is None:
        return [TableCell("–"), TableCell("–"), TableCell("–"), TableCell("not tested")]
    digits = digits_of_difference(versus, results.tested)
    difference, low, high = (
        format_number(value, digits, signed=True)
        for value in (versus.difference, versus.low, versus.high)
    )
    limit, least = "", least_shown(versus)
    if least is not None:
        possible = is_possible(least, results.tested)
        limit = f"±{format_threshold(least, digits)}" if possible else NO_SCORE
    return [
        TableCell(difference),
        TableCell(f"{low} to {high}"),
        TableCell(format_p_value(versus.p_holm)),
        TableCell(versus.verdict, (limit,) if limit else ()),
    ]
