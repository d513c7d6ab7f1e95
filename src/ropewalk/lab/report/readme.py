"""The README of a results folder, written out of its numbers alone."""

from __future__ import annotations

import re

from ropewalk.files import Facts
from ropewalk.lab.report import conditions, findings, tables, tuned
from ropewalk.lab.report.formats import format_count, format_list, format_number, language_name
from ropewalk.lab.report.metrics import is_translation
from ropewalk.lab.report.seeds import seeds_each
from ropewalk.lab.report.tables import Table, TableCell

_NOT_IN_EXCERPT = ("parameters", "extra", "peak memory, MiB")
_CAPTIONS = {  # what a figure shows, and how it is to be read
    "bleu.png": (
        "BLEU on the first test split",
        "a dot for each seed, a bar for the mean; beside it the difference from the baseline",
    ),
    "bleu-by-length.png": (
        "BLEU on the first test split by sentence length",
        "lines join the means, small dots are seeds",
    ),
    "score.png": (
        "The score on the first split",
        "a dot for each seed, a bar for the mean; beside it the difference from the baseline",
    ),
    "score-by-length.png": (
        "The score by length, trained on and past it",
        "lines join the means, small dots are seeds",
    ),
    "loss.png": (
        "Training loss (moving mean) and validation loss",
        "thin lines are seeds, bold ones their mean",
    ),
    "attention.png": (
        "Self-attention over one sequence, every head",
        "layers from top to bottom, heads from left to right; in each, rows attend and columns are "
        "attended to, by position; colour grows with the square root of the weight, from 0 to 1",
    ),
}


#: The pictures that a results folder may have, in the order of its README.
PICTURES = tuple(_CAPTIONS)


def readme(results: Facts, pictures: list[str], tuning: Facts | None = None) -> str:
    """Write the README of a results folder, in Markdown, out of its numbers alone."""
    parts = [
        f"# {_escape(findings.title(results))}",
        "<!-- Generated from results.json; the next run writes it anew. -->",
        _question(results),
        f"```sh\n{results['command']}\n```",
        "## Result",
        f"**{_escape(findings.headline(results))}**",
        _markdown(tables.main_table(results)),
        _escape(tables.legend(results)),
        "\n".join(f"- {_escape(sentence)}" for sentence in findings.findings(results)),
    ]
    if len(results["splits"]) > 1:
        others = "Other test splits" if is_translation(results) else "Other lengths"
        parts += [f"### {others}", _markdown(tables.splits_table(results))]
    for name in results.get("against", ()):
        parts += [
            f"### Against {_escape(name)}",
            _markdown(tables.against_table(results, name)),
            "p is corrected for all comparisons of a split with this encoding (Holm).",
        ]
    for name in pictures:
        shown, how = (_escape(text) for text in _CAPTIONS[name])
        parts.append(f"![{shown}]({name})\n\n{shown}: {how}.")
    parts += _by_length(results)
    parts += ["## Every run by itself", _markdown(tables.runs_table(results))]
    parts += _sweep(results)
    if tuning is not None:
        parts += ["## What was tuned", _tuning(tuning)]
    data = "Corpus" if is_translation(results) else "Task"
    parts += [f"## {data}", _facts(conditions.corpus_facts(results))]
    parts += ["## Conditions", _facts(conditions.conditions(results))]
    each = "sentence's BLEU" if is_translation(results) else "item's score"
    parts += [
        f"The whole config is in `results.json`, each {each} and the loss curves in `encodings/`."
    ]
    return "\n\n".join(parts) + "\n"


def with_excerpt(text: str, name: str, results: Facts) -> str:
    """Give a README's text with these results' headline and table between ``name``'s marks."""
    marks = rf"(<!-- result: {re.escape(name)} -->\n).*?(<!-- end -->)"
    table = tables.main_table(results)
    shown = [i for i, title in enumerate(table.columns) if title not in _NOT_IN_EXCERPT]
    columns = tuple(table.columns[i] for i in shown)
    rows = tuple(tuple(row[i] for i in shown) for row in table.rows)
    body = f"{_escape(findings.headline(results))}\n\n{_markdown(Table(columns, rows))}\n"
    new, found = re.subn(marks, lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.DOTALL)
    if not found:
        raise ValueError(f"the README has no marks <!-- result: {name} --> and <!-- end -->")
    return new


def _question(results: Facts) -> str:
    rows, corpus = results["encodings"], results["corpus"]
    names = format_list(row["name"] for row in rows)
    seeds = seeds_each(rows)
    if not is_translation(results):
        return _escape(
            f"Asked: what does the position encoding change in "
            f"{findings.task_description(results)}? The same model was trained with {names} in "
            f"turn, {seeds} each, {_others(results)}."
        )
    train = format_count(corpus["pairs"]["train"], "sentence pair")
    return _escape(
        f"Asked: what does the position encoding change in translation from "
        f"{language_name(corpus['source'])} to {language_name(corpus['target'])}? The same "
        f"model was trained on {train} of {corpus['name']} with {names} in turn, "
        f"{seeds} each, {_others(results)}."
    )


def _others(results: Facts) -> str:
    if not tuned.is_tuned(results):
        return "all other settings the same"
    fields = format_list(results["config"]["sweep"])
    return f"each with its own choice of {fields}, all other settings the same"


def _by_length(results: Facts) -> list[str]:
    if is_translation(results):
        parts = ["## By sentence length"]
        for each in results["splits"]:
            table = _markdown(tables.length_table(results, each))
            parts += [f"{_escape(each)}, words in the source:", table]
        return parts
    if len(results["splits"]) == 1:
        return []
    return ["## By length", _markdown(tables.multiples_table(results))]


def _sweep(results: Facts) -> list[str]:
    if not tuned.is_tuned(results):
        return []
    tried = (tuned.training_trials(results), tuned.decoding_trials(results))
    return [
        "## What each encoding chose",
        _escape(" ".join(tuned.sentences(results))),
        *(_markdown(table) for table in tried if table is not None),
    ]


def _tuning(tuning: Facts) -> str:
    names = list(tuning["mean"])
    cells = [
        (TableCell(cell), *(TableCell(format_number(bleu[name], 2)) for name in names))
        for cell, bleu in tuning["cells"].items()
    ]
    means = (
        TableCell("mean of all"),
        *(TableCell(format_number(tuning["mean"][n], 2)) for n in names),
    )
    return (
        "How many of the last snapshots are averaged, and the length penalty, were chosen by BLEU "
        "on the validation split: one grid and one choice for all encodings, made before any test "
        f"split was translated. Chosen: {_escape(tuning['chosen'])}.\n\n"
        + _markdown(Table(("", *names), (*cells, means)))
    )


def _markdown(table: Table) -> str:
    lines = [tuple(map(_escape, table.columns))]
    lines.append(tuple("---" if i == 0 else "--:" for i in range(len(table.columns))))
    lines += [tuple(_markdown_cell(cell) for cell in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: TableCell) -> str:
    seeds = f"<br><sub>{_escape(' · '.join(cell.seeds))}</sub>" if cell.seeds else ""
    return f"{_escape(cell.main)}{seeds}"


def _facts(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"- {_escape(name)}: {_escape(text)}" for name, text in facts)


def _escape(text: str) -> str:
    """Escape what Markdown or HTML would take for markup."""
    for sign in "\\`*[]|":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
