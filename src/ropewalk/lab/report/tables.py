"""The tables of a comparison as text in cells; the report and the README only dress them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ropewalk.files import Facts
from ropewalk.lab.report.formats import bin_label, duration, p_value
from ropewalk.lab.report.metrics import (
    column,
    digits_for,
    headline_measure,
    is_translation,
    measures,
    number,
    tested_measure,
)


@dataclass(frozen=True)
class Cell:
    """What a cell says; below it, smaller, the same for each seed."""

    main: str
    seeds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Column titles, and rows that begin with the encoding's name."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def main_table(results: Facts) -> Table:
    """One row an encoding: the first test split with its test, long sentences, losses and cost.

    Long sentences are the other test splits, or where there is none the longest of the first one.
    """
    split, *others = results["splits"]
    titles = [column(measure, split) for measure in measures(results)]
    columns = ["encoding", *titles, *_versus_columns(results)]
    columns += [column(headline_measure(results), other) for other in others]
    if not others and (bins := _bins(results, split)):
        columns.append(f"BLEU {bin_label(bins[-1])} words")
    columns += ["validation loss", "at equal time", "parameters", "extra", "tokens/s"]
    columns.append("peak memory, MiB")
    return Table(tuple(columns), tuple(_row(results, row) for row in results["encodings"]))


def legend(results: Facts) -> str:
    """Say how the main table is to be read."""
    rows = results["encodings"]
    seeds = results["config"]["seeds"]
    said = ["Large: the mean. Small: every seed." if len(seeds) > 1 else f"Seed {seeds[0]} alone."]
    if any(cell["status"] == "diverged" for row in rows for cell in row["cells"]):
        said.append("†: this run diverged.")
    if len(rows) > 1:
        said.append(
            f"Against {rows[0]['name']}: difference in mean {tested_measure(results)['name']}."
        )
    if len(rows) > 2:
        said.append("p is corrected for all comparisons of a split (Holm), the interval is not.")
    tokens = "target tokens" if is_translation(results) else "predicted tokens"
    said.append(
        "At equal time: validation loss after as much training time as the fastest run took. "
        f"Extra: parameters above those of the leanest model. Tokens/s: {tokens} in training, "
        "padding not counted. Peak memory: of the whole process."
    )
    return " ".join(said)


def splits_table(results: Facts) -> Table:
    """One row a further test split and encoding: scores, and the test against the first."""
    rows = tuple(
        (Cell(split), _name(row), *_split_cells(results, row, split))
        for split in results["splits"][1:]
        for row in results["encodings"]
    )
    titles = (column(measure) for measure in measures(results))
    return Table(("split", "encoding", *titles, *_versus_columns(results)), rows)


def length_table(results: Facts, split: str) -> Table:
    """BLEU of each encoding in bins of the source's length: mean, and every seed."""
    bins = results["length_bins"][split]
    columns = ("encoding", *(f"{bin_label(b)} words ({b['sentences']:,} sentences)" for b in bins))
    rows = []
    for row in results["encodings"]:
        cells = [_length_cell(row, split, place) for place in range(len(bins))]
        rows.append((_name(row), *cells))
    return Table(columns, tuple(rows))


def multiples_table(results: Facts) -> Table:
    """The headline score of each encoding at each length, trained and past it."""
    measure, lengths = headline_measure(results), results["lengths"]
    columns = ("encoding", *(f"{n:,} {lengths['unit']} ({s})" for s, n in lengths["of"].items()))
    rows = [
        (_name(row), *(_score(row, split, measure) for split in lengths["of"]))
        for row in results["encodings"]
    ]
    return Table(columns, tuple(rows))


def runs_table(results: Facts) -> Table:
    """One row a training: how it ended, what it took, what it scored."""
    splits = results["splits"]
    columns = [
        "encoding",
        "seed",
        "ended",
        "steps",
        "training time",
        "tokens/s",
        "peak memory, MiB",
    ]
    columns += ["validation loss"]
    for split in splits:
        columns += [column(measure, split) for measure in measures(results)]
        columns.append(f"{'decoding' if is_translation(results) else 'scoring'} {split}")
    rows = []
    for row in results["encodings"]:
        for cell in row["cells"]:
            texts = [str(cell["seed"]), cell["status"], f"{cell['steps']:,}"]
            texts += [duration(cell["train_seconds"]), number(cell["tokens_per_s"], 0)]
            texts += [memory(cell["peak_memory_bytes"]), number(cell["validation_loss"], 3)]
            for split in splits:
                score = cell["scores"].get(split) or {}
                texts += [number(score.get(m["key"]), m["digits"] + 1) for m in measures(results)]
                spent = score.get("decode_seconds")
                texts.append("–" if spent is None else duration(spent))
            rows.append((Cell(row["name"]), *map(Cell, texts)))
    return Table(tuple(columns), tuple(rows))


def memory(size: float | None) -> str:
    """Write an amount of memory in MiB."""
    return number(None if size is None else size / 2**20, 0)


def _row(results: Facts, row: Facts) -> tuple[Cell, ...]:
    split, *others = results["splits"]
    diverged = _diverged(row)
    cells = [_name(row), *_split_cells(results, row, split)]
    cells += [_score(row, other, headline_measure(results)) for other in others]
    if not others and _bins(results, split):
        cells.append(_length_cell(row, split, -1))
    loss, equal = row["validation_loss"], row.get("equal_time")
    cells.append(_marked(loss, diverged, 3))
    cells.append(_marked(equal["validation_loss"], diverged, 3) if equal else Cell("–"))
    cells += [Cell(f"{row['parameters']:,}"), Cell(f"{row['extra_parameters']:+,}")]
    cells.append(_spread(row["tokens_per_s"]["values"], 0, row["tokens_per_s"]["mean"]))
    peaks = row["peak_memory_bytes"]
    cells.append(Cell(memory(peaks["mean"]), _seeds(memory(v) for v in peaks["values"])))
    return tuple(cells)


def _name(row: Facts) -> Cell:
    return Cell(row["name"], _seeds(f"seed {cell['seed']}" for cell in row["cells"]))


def _seeds(texts: Iterable[str]) -> tuple[str, ...]:
    """Give what each seed has to say; one seed alone says the same as the mean."""
    said = tuple(texts)
    return said if len(said) > 1 else ()


def _split_cells(results: Facts, row: Facts, split: str) -> list[Cell]:
    cells = [_score(row, split, measure) for measure in measures(results)]
    if len(results["encodings"]) > 1:
        cells += _versus(results, row, row["summary"][split].get("versus_first"))
    return cells


def _score(row: Facts, split: str, measure: Facts) -> Cell:
    summary = row["summary"][split]
    spread = summary[measure["key"]]
    if "no_result" in summary and all(value is None for value in spread["values"]):
        return Cell("no result")
    return _marked(spread, _diverged(row), measure["digits"])


def _bins(results: Facts, split: str) -> list[Facts]:
    bins: list[Facts] = results.get("length_bins", {}).get(split, [])
    return bins


def _diverged(row: Facts) -> list[bool]:
    return [cell["status"] == "diverged" for cell in row["cells"]]


def _length_cell(row: Facts, split: str, place: int) -> Cell:
    scores = [cell["scores"].get(split) for cell in row["cells"]]
    known = [score if score and "bleu" in score else None for score in scores]
    return _spread([score["by_length"][place]["bleu"] if score else None for score in known], 1)


def _versus_columns(results: Facts) -> list[str]:
    first = results["encodings"][0]["name"]
    if len(results["encodings"]) < 2:
        return []
    return [f"against {first}", "95 % interval", "p (Holm)", "verdict"]


def _marked(spread: Facts, diverged: list[bool], digits: int) -> Cell:
    """Write mean and every seed, a dagger beside those that diverged."""
    seeds = tuple(
        f"{number(value, digits)}{' †' if gone else ''}"
        for value, gone in zip(spread["values"], diverged, strict=True)
    )
    return Cell(number(spread["mean"], digits), seeds) if len(seeds) > 1 else Cell(seeds[0])


def _spread(values: list[float | None], digits: int, mean: float | None = None) -> Cell:
    known = [value for value in values if value is not None]
    if mean is None and known and len(known) == len(values):
        mean = sum(known) / len(known)
    return Cell(number(mean, digits), _seeds(number(value, digits) for value in values))


def _versus(results: Facts, row: Facts, versus: Facts | None) -> list[Cell]:
    if row is results["encodings"][0]:
        return [Cell("–"), Cell("–"), Cell("–"), Cell("the first")]
    if versus is None:
        return [Cell("–"), Cell("–"), Cell("–"), Cell("not tested")]
    difference, low, high = (
        number(versus[name], digits_for(versus, tested_measure(results)), signed=True)
        for name in ("difference", "low", "high")
    )
    return [
        Cell(difference),
        Cell(f"{low} to {high}"),
        Cell(p_value(versus["p_holm"])),
        Cell(versus["verdict"]),
    ]
