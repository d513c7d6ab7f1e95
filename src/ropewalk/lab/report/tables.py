"""The tables of a comparison, and how to read them, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ropewalk.checks import joined
from ropewalk.lab.config import TRAINING_FIELDS, described
from ropewalk.lab.data.phrases import LONGEST
from ropewalk.lab.report.formats import (
    Table,
    TableCell,
    bin_label,
    code,
    code_list,
    column_title,
    format_count,
    format_duration,
    format_margin,
    format_number,
    is_score,
    tested_difference,
)
from ropewalk.lab.results import (
    EncodingResults,
    MetricFacts,
    Results,
    SplitScores,
    Spread,
    Trial,
    Verdict,
)
from ropewalk.lab.scoring import bleu
from ropewalk.lab.tasks import CLASSES

BUILT_IN = "phrases"  # the corpus whose split "long" has longer sentences than training
_COMPARED = ("95 % interval", "p (Holm)", "verdict")


def main_table(results: Results) -> Table:
    """Return a row for each encoding: the first test split, the other splits, loss and cost.

    Without other splits, a translation shows the longest sentences of the first one instead.
    """
    split, *others = results.splits
    headline = results.headline_metric
    bins = () if others else results.length_bins.get(split, ())
    titles = [column_title(metric, split) for metric in results.metrics]
    columns = ["encoding", *titles, *_comparison_columns(results)]
    columns += [column_title(headline, other) for other in others]
    columns += [f"BLEU {bin_label(longest)} words" for longest in bins[-1:]]
    columns += ["validation loss", "parameters", "extra parameters", "peak memory, MiB"]
    rows = []
    for row in results.encodings:
        memory = row.peak_memory_bytes
        rows.append(
            [
                _name(row),
                *_split_cells(results, row, split),
                *(_score(row, other, headline) for other in others),
                *(_length_cell(row, split, -1) for _ in bins[-1:]),
                _spread_cell(row, row.validation_loss, 3),
                f"{row.parameters:,}",
                f"{row.extra_parameters:+,}",
                _seeds_cell(
                    format_memory(memory.mean),
                    map(format_memory, memory.values if memory.mean is not None else ()),
                ),
            ]
        )
    return Table(columns, rows)


def splits_table(results: Results) -> Table:
    """Return a row for each further split and encoding: scores and test against the baseline."""
    titles = (column_title(metric) for metric in results.metrics)
    return Table(
        ["split", "encoding", *titles, *_comparison_columns(results)],
        [
            [split, _name(row), *_split_cells(results, row, split)]
            for split in results.splits[1:]
            for row in results.encodings
        ],
    )


def against_table(results: Results, name: str) -> Table:
    """Return a row for each test split and encoding: the test against the encoding `name`."""
    return Table(
        ["split", "encoding", f"difference in {results.tested.name}", *_COMPARED],
        [
            [split, row.name, *_versus_cells(results, row.summary[split].versus.get(name))]
            for split in results.splits
            for row in results.encodings
            if row.name != name
        ],
    )


def length_table(results: Results, split: str) -> Table:
    """Return BLEU of each encoding by the length of the source: the mean and every seed."""
    bins = results.length_bins[split]
    return Table(
        ["encoding", *(f"{bin_label(b)} words ({b.sentences:,} sentences)" for b in bins)],
        [
            [_name(row), *(_length_cell(row, split, place) for place in range(len(bins)))]
            for row in results.encodings
        ],
    )


def multiples_table(results: Results) -> Table:
    """Return the headline score of each encoding at each length, from the trained length on."""
    metric, lengths = results.headline_metric, results.lengths
    assert lengths is not None
    return Table(
        ["encoding", *(f"{n:,} {lengths.unit} ({s})" for s, n in lengths.of.items())],
        [
            [_name(row), *(_score(row, split, metric) for split in lengths.of)]
            for row in results.encodings
        ],
    )


def runs_table(results: Results) -> Table:
    """Return a row for each training: how it ended, its cost and its scores."""
    translated = results.is_translation
    columns = ["encoding", "seed", "outcome", "steps", "training time", "peak memory, MiB"]
    columns.append("validation loss")
    for split in results.splits:
        columns += [column_title(metric, split) for metric in results.metrics]
        columns += [f"brevity penalty on {split}"] if translated else []
        columns.append(f"{'decoding' if translated else 'scoring'} time on {split}")
    rows = []
    for row in results.encodings:
        for cell in row.cells:
            texts = [row.name, str(cell.seed), cell.status, f"{cell.steps:,}"]
            texts += [
                format_duration(cell.train_seconds),
                format_memory(cell.peak_memory_bytes),
                format_number(cell.validation_loss, 3),
            ]
            for score in (cell.scores[split] for split in results.splits):
                texts += [format_number(score.score(m.key), m.digits + 1) for m in results.metrics]
                texts += [format_number(brevity_penalty(score), 3)] if translated else []
                spent = score.decode_seconds
                texts.append("–" if spent is None else format_duration(spent))
            rows.append(texts)
    return Table(columns, rows)


def brevity_penalty(scores: SplitScores) -> float | None:
    """Return the brevity penalty in a translation's BLEU, or None if it is not known."""
    if scores.statistics is None:
        return None
    sums = CLASSES["translation"].statistics_of(scores.statistics).sum(0)
    return bleu.brevity_penalty(sums).item()


def format_memory(size: float | None) -> str:
    """Return an amount of memory in MiB as text."""
    return format_number(None if size is None else size / 2**20, 0)


def _name(row: EncodingResults) -> TableCell:
    return _seeds_cell(row.name, (f"seed {cell.seed}" for cell in row.cells))


def _seeds_cell(text: str, seeds: Iterable[str]) -> TableCell:
    """Return a cell with the text of each seed; of one seed, the mean says the same."""
    notes = tuple(seeds)
    return TableCell(text, notes if len(notes) > 1 else ())


def _split_cells(results: Results, row: EncodingResults, split: str) -> list[TableCell | str]:
    cells: list[TableCell | str] = [_score(row, split, metric) for metric in results.metrics]
    if row is results.encodings[0]:
        return cells + ["–", "–", "–", "baseline"] * (len(results.encodings) > 1)
    return cells + _versus_cells(results, row.summary[split].versus_first)


def _score(row: EncodingResults, split: str, metric: MetricFacts) -> TableCell:
    summary = row.summary[split]
    spread = summary.spread(metric.key)
    if summary.no_result is not None and all(value is None for value in spread.values):
        return TableCell("no result")
    return _spread_cell(row, spread, metric.digits)


def _spread_cell(row: EncodingResults, spread: Spread, digits: int) -> TableCell:
    """Return the mean and every seed, with a dagger after those that diverged."""
    seeds = [
        format_number(value, digits) + " †" * (cell.status == "diverged")
        for value, cell in zip(spread.values, row.cells, strict=True)
    ]
    return _seeds_cell(format_number(spread.mean, digits) if len(seeds) > 1 else seeds[0], seeds)


def _length_cell(row: EncodingResults, split: str, place: int) -> TableCell:
    bins = [cell.scores[split].by_length for cell in row.cells]
    values = [scores[place].bleu if scores else None for scores in bins]
    known = [value for value in values if value is not None]
    mean = fmean(known) if known and len(known) == len(values) else None
    return _seeds_cell(format_number(mean), map(format_number, values))


def _comparison_columns(results: Results) -> list[str]:
    if len(results.encodings) < 2:
        return []
    return [f"difference from {results.encodings[0].name}", *_COMPARED]


def _versus_cells(results: Results, versus: Verdict | None) -> list[TableCell | str]:
    if versus is None:
        return ["–", "–", "–", "not tested"]
    told = tested_difference(versus, results.tested)
    return [told.difference, f"{told.low} to {told.high}", told.p, versus.verdict]


def legend(results: Results) -> str:
    """Explain how to read the main table."""
    rows, seeds, tested = results.encodings, results.config.seeds, results.tested
    tests = _tests_and_scores(results)
    sentences = [
        "Large numbers are means, small numbers are single seeds."
        if len(seeds) > 1
        else f"All results are of one seed (seed {seeds[0]})."
    ]
    if any(cell.status == "diverged" for row in rows for cell in row.cells):
        sentences.append("†: this run diverged.")
    if len(rows) > 1:
        sentences.append(
            f"Differences in mean {tested.name} are relative to the baseline, "
            f"{code(rows[0].name)}, and computed before rounding."
        )
    if margins := sorted({format_margin(test, tested) for test, _ in tests}):
        sentences.append(
            f"“Equal”: the interval lies within ±{margins[0]}. “Open”: it does not, and p (Holm) "
            "is 0.05 or more, so neither a difference nor equality is shown."
        )
    if not all(
        is_score(score + end, tested) for test, score in tests for end in (test.low, test.high)
    ):
        sentences.append("Intervals are symmetric, so they may extend beyond possible scores.")
    sentences += _split_meanings(results)
    sentences.append("Extra parameters are counted relative to the smallest model.")
    measured = all(row.peak_memory_bytes.mean is not None for row in rows)
    memory = "is that of the full process" if measured else "is not known"
    return " ".join([*sentences, f"Peak memory {memory}."])


def _tests_and_scores(results: Results) -> list[tuple[Verdict, float]]:
    """Return all tests whose verdicts the tables show, each with the reference's score."""
    tests = []
    for row in results.encodings:
        for summary in row.summary.values():
            for test in filter(None, (*summary.versus.values(), summary.versus_first)):
                mean = summary.spread(results.tested.key).mean
                assert mean is not None  # both have scores of all seeds
                tests.append((test, mean - test.difference))
    return tests


def _split_meanings(results: Results) -> list[str]:
    """Explain the names of splits that do not explain themselves."""
    if (lengths := results.lengths) is not None:
        trained = {lengths.trained: " (the trained length)"}
        texts = (
            f"{code(split)} is {n:,} {lengths.unit}{trained.get(n, '')}"
            for split, n in lengths.of.items()
        )
        return [f"{', '.join(texts)}."]
    if results.corpus.name != BUILT_IN or "long" not in results.splits:
        return []
    bins = results.length_bins["long"]
    return [
        f"Sentences of the split {code('long')} have {bins[0].first}–{bins[-1].last} words; "
        f"training sentences have at most {LONGEST}."
    ]


def interval_note(results: Results) -> str:
    """Explain why an interval and a verdict may differ; empty if no p is corrected."""
    if len(results.encodings) < 3:
        return ""
    return (
        "The 95 % interval is for one comparison alone. The verdict uses a p-value that is "
        "corrected for the number of encodings compared on a split (Holm's method). So an interval "
        "can exclude 0 while the verdict is “equal” or “open”."
    )


#: Swept fields that change the size of a model, or how much it is trained.
LARGER = (
    *("width", "heads", "kv_heads", "feed_forward", "encoder_layers", "decoder_layers", "layers"),
    *("epochs", "batch_tokens", "batch_sentences", "accumulate"),
)
#: The least value that a field can have.
LEAST = {"beam": 1, "average": 1, "length_penalty": 0.0, "dropout": 0.0, "label_smoothing": 0.0}


def is_tuned(results: Results) -> bool:
    """Return whether the encodings of these results have settings of their own."""
    return any(row.settings is not None for row in results.encodings)


def trials_tables(results: Results) -> dict[str, Table]:
    """Return the tables of the settings that a sweep tried on validation data, by their titles.

    That of training settings has validation losses. Its last columns have the chosen setting, and
    how much tuning changes the difference from the first encoding. That of decoding settings has
    mean scores.
    """
    tables = {}
    if rows := [row for row in results.encodings if row.trials]:
        tables["Validation loss with each setting"] = _training_trials(rows)
    if rows := [row for row in results.encodings if row.decoding_trials]:
        tables["Decoding settings on validation data"] = _decoding_trials(results, rows)
    return tables


def _training_trials(rows: Sequence[EncodingResults]) -> Table:
    first = rows[0]
    shared = _chosen_trial(first).settings
    columns = ["encoding", *(_setting(trial.settings) for trial in first.trials), "chosen"]
    if len(rows) > 1:
        columns += [
            f"difference from {first.name}, both with {_setting(shared)}",
            "difference, each with its own setting",
            "change by tuning",
        ]
    lines = []
    for row in rows:
        losses = [trial.validation_loss for trial in row.trials]
        texts = ["diverged" if loss is None else format_number(loss, 3) for loss in losses]
        texts.append(_setting(_chosen_trial(row).settings))
        if len(rows) > 1:
            texts += ["–"] * 3 if row is first else _gaps(row, first, shared)
        lines.append([row.name, *texts])
    return Table(columns, lines)


def _decoding_trials(results: Results, rows: Sequence[EncodingResults]) -> Table:
    metric = CLASSES[results.task].tuned_metric
    lines = []
    for row in rows:
        texts = [row.name]
        for trial in row.decoding_trials:
            penalty = trial.mean("brevity_penalty")
            brackets = "" if penalty is None else f" ({format_number(penalty, 3)})"
            texts.append(format_number(trial.mean(metric.key), metric.digits + 1) + brackets)
        settings = (row.settings or {}).items()
        chosen = {name: value for name, value in settings if name not in TRAINING_FIELDS}
        lines.append([*texts, _setting(chosen)])
    tried = (_setting(trial.settings) for trial in rows[0].decoding_trials)
    return Table(["encoding", *tried, "chosen"], lines)


def _chosen_trial(row: EncodingResults) -> Trial:
    own = {name: value for name, value in (row.settings or {}).items() if name in TRAINING_FIELDS}
    return next(trial for trial in row.trials if trial.settings == own)


def _gaps(row: EncodingResults, first: EncodingResults, shared: Mapping[str, Any]) -> list[str]:
    """Return the difference from the first with shared settings, with own ones, and the change."""
    base = _chosen_trial(first).validation_loss
    same = next(t.validation_loss for t in row.trials if t.settings == shared)
    own = _chosen_trial(row).validation_loss
    if base is None or own is None:
        return ["–"] * 3
    tuned = format_number(own - base, 3, signed=True)
    if same is None:
        return ["diverged", tuned, "–"]
    shared_gap = format_number(same - base, 3, signed=True)
    return [shared_gap, tuned, format_number(own - same, 3, signed=True)]


def _setting(settings: Mapping[str, Any]) -> str:
    return described(tuple(settings.items())) or "as configured"


def how_tuned(results: Results) -> str:
    """Return how settings were chosen, and how to read their tables, as sentences."""
    row, swept = results.encodings[0], results.config.sweep
    sentences = []
    if trials := row.trials:
        seed = trials[0].seed
        sentences.append(
            f"Each encoding was trained with {format_count(len(trials), 'setting')} and seed "
            f"{seed}; the setting with the lowest validation loss was chosen."
        )
        if len(row.cells) > 1:
            sentences.append("The other seeds were trained with that setting.")
        if larger := [name for name in swept if name in LARGER]:
            sentences.append(
                f"Encodings that differ in the chosen {joined(larger)} also differ in size or "
                "training, not only in the encoding."
            )
        if len(results.encodings) > 1:
            sentences.append(
                f"The table has two columns of differences between an encoding and "
                f"{code(row.name)}: in the first, both have the setting chosen for "
                f"{code(row.name)}; in the second, each has its own. “Change by tuning” is the "
                f"second minus the first. All are validation losses of seed {seed}."
            )
    if tried := row.decoding_trials:
        metric = CLASSES[results.task].tuned_metric
        seeds = format_count(len(tried[0].values(metric.key)), "seed")
        has_penalty = tried[0].mean("brevity_penalty") is not None
        sentences.append(
            f"Decoding settings were chosen by {metric.name} on validation data. Each encoding "
            f"tried the same {format_count(len(tried), 'setting')}. The table of decoding settings "
            f"has the mean {metric.name} of {seeds}"
            f"{' and, in brackets, the brevity penalty' * has_penalty}."
        )
    for name, values in swept.items():
        if len(values) < 3 or not all(isinstance(value, (int, float)) for value in values):
            continue
        ends = {min(values), max(values)} - {LEAST.get(name)}  # the least value cannot be passed
        at_end = [r.name for r in results.encodings if (r.settings or {}).get(name) in ends]
        if at_end:
            sentences.append(
                f"For {code_list(at_end)}, the chosen {name} is at an end of the range that was "
                f"tried, {min(values)} to {max(values)}: a better value may lie beyond it."
            )
    return " ".join(sentences)
