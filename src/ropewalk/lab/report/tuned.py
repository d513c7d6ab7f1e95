"""The settings that a sweep tried on validation data and chose, as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.lab.config import TRAINING_FIELDS, described
from ropewalk.lab.report.formats import code, code_list, format_count, format_list, format_number
from ropewalk.lab.report.tables import Table, TableCell
from ropewalk.lab.results import DecodingTrial, EncodingResults, Results, Trial
from ropewalk.lab.tasks import CLASSES

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


def training_trials(results: Results) -> Table | None:
    """Return validation loss of each encoding with each training setting; None if none were tried.

    The last columns have the chosen setting, and how much tuning changes the difference from the
    first encoding.
    """
    rows = [row for row in results.encodings if row.trials]
    if not rows:
        return None
    first = rows[0]
    shared = _chosen_trial(first).settings
    columns = ["encoding", *(_name(trial.settings) for trial in first.trials), "chosen"]
    if len(rows) > 1:
        columns += [
            f"difference from {first.name}, both with {_name(shared)}",
            "difference, each with its own setting",
            "change by tuning",
        ]
    lines = []
    for row in rows:
        losses = [trial.validation_loss for trial in row.trials]
        texts = ["diverged" if loss is None else format_number(loss, 3) for loss in losses]
        texts.append(_name(_chosen_trial(row).settings))
        if len(rows) > 1:
            texts += ["–"] * 3 if row is first else _gaps(row, first, shared)
        lines.append((TableCell(row.name), *map(TableCell, texts)))
    return Table(tuple(columns), tuple(lines))


def decoding_trials(results: Results) -> Table | None:
    """Return the mean validation score of each encoding and decoding setting; None if none."""
    rows = [row for row in results.encodings if row.decoding_trials]
    if not rows:
        return None
    metric = CLASSES[results.task].tuned_metric
    columns = ["encoding", *(_name(trial.settings) for trial in rows[0].decoding_trials)]
    lines = []
    for row in rows:
        cells = [_decoding_cell(trial, metric.key, metric.digits) for trial in row.decoding_trials]
        chosen = {k: v for k, v in (row.settings or {}).items() if k not in TRAINING_FIELDS}
        lines.append((TableCell(row.name), *cells, TableCell(_name(chosen))))
    return Table((*columns, "chosen"), tuple(lines))


def sentences(results: Results) -> list[str]:
    """Return how settings were chosen, and how to read the tables."""
    row = results.encodings[0]
    seeds = [cell.seed for cell in row.cells]
    said = []
    if trials := row.trials:
        said.append(
            f"Each encoding was trained with {format_count(len(trials), 'setting')} and seed "
            f"{trials[0].seed}; the setting with the lowest validation loss was chosen."
        )
        if len(seeds) > 1:
            said[-1] += " The other seeds were trained with that setting."
        said += _unequal(results)
        if len(results.encodings) > 1:
            said.append(
                f"The table has two columns of differences between an encoding and "
                f"{code(row.name)}: in the first, both have the setting chosen for "
                f"{code(row.name)}; in the second, each has its own. “Change by tuning” is the "
                f"second minus the first. All are validation losses of seed {trials[0].seed}."
            )
    if tried := row.decoding_trials:
        metric = CLASSES[results.task].tuned_metric
        penalty = " and, in brackets, the brevity penalty" * (
            tried[0].mean("brevity_penalty") is not None
        )
        said.append(
            f"Decoding settings were chosen by {metric.name} on validation data. Each encoding "
            f"tried the same {format_count(len(tried), 'setting')}. The table of decoding settings "
            "has the mean "
            f"{metric.name} of {format_count(len(tried[0].values(metric.key)), 'seed')}{penalty}."
        )
    return said + _edges(results)


def _unequal(results: Results) -> list[str]:
    """Return which swept fields make the model or its training larger."""
    fields = [name for name in results.config.sweep if name in LARGER]
    if not fields:
        return []
    return [
        f"Encodings that differ in the chosen {format_list(fields)} also differ in size or "
        f"training, not only in the encoding."
    ]


def _edges(results: Results) -> list[str]:
    """Return which settings were chosen at an end of their range: a better one may lie beyond."""
    said = []
    for name, values in results.config.sweep.items():
        if len(values) < 3 or not all(isinstance(value, (int, float)) for value in values):
            continue
        ends = {min(values), max(values)} - {LEAST.get(name)}  # the least value cannot be passed
        at_end = [r.name for r in results.encodings if (r.settings or {}).get(name) in ends]
        if at_end:
            said.append(
                f"For {code_list(at_end)}, the chosen {name} is at an end of the range that was "
                f"tried, {min(values)} to {max(values)}: a better value may lie beyond it."
            )
    return said


def _decoding_cell(trial: DecodingTrial, key: str, digits: int) -> TableCell:
    text = format_number(trial.mean(key), digits + 1)
    if (penalty := trial.mean("brevity_penalty")) is not None:
        text += f" ({format_number(penalty, 3)})"
    return TableCell(text)


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


def _name(settings: Mapping[str, Any]) -> str:
    return described(tuple(settings.items())) or "as configured"
