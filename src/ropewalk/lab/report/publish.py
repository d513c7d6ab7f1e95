"""What of a run may be kept under version control: its numbers and figures, never its sentences.

``python -m ropewalk.lab.report.publish RUN_FOLDER FOLDER`` writes them; with a README as third
argument, the table between its marks ``<!-- result: FOLDER -->`` and ``<!-- end -->`` is written
anew too.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.figures import static
from ropewalk.files import Facts, read_json, write_bytes
from ropewalk.lab.report import conditions, findings, tables
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes, without_nan
from ropewalk.lab.report.formats import count, language, listed
from ropewalk.lab.report.measures import (
    column,
    headline_measure,
    is_translation,
    number,
    tested_measure,
)
from ropewalk.lab.report.tables import Cell, Table
from ropewalk.lab.results import read_results, read_tuning

_NOT_IN_EXCERPT = ("at equal time", "parameters", "extra", "peak memory, MiB")
_CAPTIONS = {  # what a figure shows, and how it is to be read
    "bleu.png": (
        "BLEU on the first test split",
        "a dot for each seed, a bar for the mean; beside it the difference from the first encoding",
    ),
    "bleu-by-length.png": (
        "BLEU on the first test split by sentence length",
        "lines join the means, small dots are seeds",
    ),
    "score.png": (
        "The score on the first split",
        "a dot for each seed, a bar for the mean; beside it the difference from the first encoding",
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


def publish(run: Path, folder: Path) -> None:
    """Write ``results.json``, figures and a README made from them into ``folder``.

    The same run gives the same bytes. A run without ``results.json`` is a ``ValueError``.
    """
    if not (run / "results.json").exists():
        raise ValueError(f"run must be a finished run's folder, got {run}: it has no results.json")
    results = without_nan(read_results(run))
    attention = read_json(run / "attention.json") if (run / "attention.json").exists() else None
    pictures = figures(results, attention)
    write_bytes(folder / "results.json", (readable_json(results) + "\n").encode())
    for name, content in pictures.items():
        write_bytes(folder / name, content)
    tuning = read_tuning(run)
    if tuning is not None:
        write_bytes(folder / "tuning.json", (readable_json(tuning) + "\n").encode())
    write_bytes(folder / "README.md", readme(results, list(pictures), tuning).encode())


def figures(results: Facts, attention: Facts | None) -> dict[str, bytes]:
    """Draw the figures of a run, file name -> PNG."""
    training, validation = (curves(results, kind, "step") for kind in ("training", "validation"))
    drawn = _scores_drawn(results)
    drawn["loss.png"] = static.loss_curves(training, validation, "steps")
    heads = _heads(results, attention)
    if heads:
        drawn["attention.png"] = static.attention_heads(heads)
    return {name: static.png(figure) for name, figure in drawn.items()}


def _scores_drawn(results: Facts) -> dict[str, Any]:
    split = results["splits"][0]
    if is_translation(results):
        return {
            "bleu.png": static.score_by_encoding(outcomes(results, split)),
            "bleu-by-length.png": static.score_by_length(*by_length(results, split)),
        }
    measure, tested = headline_measure(results), tested_measure(results)
    other = tested["name"] if tested != measure else ""
    title = column(measure, split)
    drawn = {"score.png": static.score_by_encoding(outcomes(results, split), title, other)}
    if len(results["splits"]) > 1:
        drawn["score-by-length.png"] = static.score_by_length(
            *by_multiple(results),
            results["lengths"]["unit"],
            column(measure),
            logarithmic=measure["key"] == "perplexity",
        )
    return drawn


def readme(results: Facts, pictures: list[str], tuning: Facts | None = None) -> str:
    """Write the README of a results folder, in Markdown, out of its numbers alone."""
    parts = [
        f"# {_plain(findings.title(results))}",
        "<!-- Generated from results.json; the next run writes it anew. -->",
        _asked(results),
        f"```sh\n{results['command']}\n```",
        "## Result",
        f"**{_plain(findings.headline(results))}**",
        _markdown(tables.main_table(results)),
        _plain(tables.legend(results)),
        "\n".join(f"- {_plain(said)}" for said in findings.findings(results)),
    ]
    if len(results["splits"]) > 1:
        others = "Other test splits" if is_translation(results) else "Other lengths"
        parts += [f"### {others}", _markdown(tables.splits_table(results))]
    for name in pictures:
        shown, how = (_plain(text) for text in _CAPTIONS[name])
        parts.append(f"![{shown}]({name})\n\n{shown}: {how}.")
    parts += _by_length(results)
    parts += ["## Every run by itself", _markdown(tables.runs_table(results))]
    if tuning is not None:
        parts += ["## What was tuned", _tuned(tuning)]
    data = "Corpus" if is_translation(results) else "Task"
    parts += [f"## {data}", _facts(conditions.corpus_facts(results))]
    parts += ["## Conditions", _facts(conditions.conditions(results))]
    each = "sentence's BLEU" if is_translation(results) else "item's score"
    parts += [f"Each {each}, the loss curves and the whole config are in `results.json`."]
    return "\n\n".join(parts) + "\n"


def _by_length(results: Facts) -> list[str]:
    if is_translation(results):
        parts = ["## By sentence length"]
        for each in results["splits"]:
            table = _markdown(tables.length_table(results, each))
            parts += [f"{_plain(each)}, words in the source:", table]
        return parts
    if len(results["splits"]) == 1:
        return []
    return ["## By length", _markdown(tables.multiples_table(results))]


def with_excerpt(text: str, name: str, results: Facts) -> str:
    """Give a README's text with these results' headline and table between ``name``'s marks."""
    marks = rf"(<!-- result: {re.escape(name)} -->\n).*?(<!-- end -->)"
    table = tables.main_table(results)
    shown = [i for i, title in enumerate(table.columns) if title not in _NOT_IN_EXCERPT]
    columns = tuple(table.columns[i] for i in shown)
    rows = tuple(tuple(row[i] for i in shown) for row in table.rows)
    body = f"{_plain(findings.headline(results))}\n\n{_markdown(Table(columns, rows))}\n"
    new, found = re.subn(marks, lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.DOTALL)
    if not found:
        raise ValueError(f"the README has no marks <!-- result: {name} --> and <!-- end -->")
    return new


def readable_json(value: Any, indent: int = 0) -> str:
    """Write JSON with one line for what is short or a list of numbers, else one for each entry."""
    flat = json.dumps(value, ensure_ascii=False)
    numbers = isinstance(value, list) and all(isinstance(held, (int, float)) for held in value)
    if not isinstance(value, (dict, list)) or not value or numbers or len(flat) + indent <= 100:
        return flat
    space, deeper = " " * indent, indent + 1
    if isinstance(value, list):
        lines = [readable_json(held, deeper) for held in value]
    else:
        lines = [
            f"{json.dumps(name, ensure_ascii=False)}: {readable_json(held, deeper)}"
            for name, held in value.items()
        ]
    first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
    return f"{first}\n" + ",\n".join(f"{space} {line}" for line in lines) + f"\n{space}{last}"


def _asked(results: Facts) -> str:
    rows, corpus = results["encodings"], results["corpus"]
    names = listed(row["name"] for row in rows)
    seeds = len(rows[0]["cells"])
    if not is_translation(results):
        return _plain(
            f"Asked: what does the position encoding change in {findings.about(results)}? The same "
            f"model was trained with {names} in turn, {count(seeds, 'seed')} each, all "
            "other settings the same."
        )
    train = count(corpus["pairs"]["train"], "sentence pair")
    return _plain(
        f"Asked: what does the position encoding change in translation from "
        f"{language(corpus['source'])} to {language(corpus['target'])}? The same "
        f"model was trained on {train} of {corpus['name']} with {names} in turn, "
        f"{count(seeds, 'seed')} each, all other settings the same."
    )


def _tuned(tuning: Facts) -> str:
    names = list(tuning["mean"])
    cells = [
        (Cell(cell), *(Cell(number(bleu[name], 2)) for name in names))
        for cell, bleu in tuning["cells"].items()
    ]
    means = (Cell("mean of all"), *(Cell(number(tuning["mean"][n], 2)) for n in names))
    return (
        "How many of the last snapshots are averaged, and the length penalty, were chosen by BLEU "
        "on the validation split: one grid and one choice for all encodings, made before any test "
        f"split was translated. Chosen: {_plain(tuning['chosen'])}.\n\n"
        + _markdown(Table(("", *names), (*cells, means)))
    )


def _heads(results: Facts, attention: Facts | None) -> dict[str, list[list[list[list[float]]]]]:
    """Give self-attention of the rule's middle sentence, encoding -> layer -> head."""
    if not attention or not attention["sentences"]:
        return {}
    middle = len(attention["sentences"]) // 2
    site = "encoder" if is_translation(results) else "self"
    maps = attention["encodings"]
    return {
        row["name"]: maps[row["slug"]]["sentences"][middle][site]["weights"]
        for row in results["encodings"]
        if row["slug"] in maps
    }


def _markdown(table: Table) -> str:
    lines = [tuple(map(_plain, table.columns))]
    lines.append(tuple("---" if i == 0 else "--:" for i in range(len(table.columns))))
    lines += [tuple(_dressed(cell) for cell in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _dressed(cell: Cell) -> str:
    seeds = f"<br><sub>{_plain(' · '.join(cell.seeds))}</sub>" if cell.seeds else ""
    return f"{_plain(cell.main)}{seeds}"


def _facts(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"- {_plain(name)}: {_plain(text)}" for name, text in facts)


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would take for markup."""
    for sign in "\\`*[]|":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish a run, and write its table into a README where one is named."""
    program = "python -m ropewalk.lab.report.publish"
    parser = argparse.ArgumentParser(prog=program, description="Publish a run.")
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("folder", help="where results.json, figures and README go")
    parser.add_argument("overview", type=Path, nargs="?", help="a README with marks for the table")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    try:
        publish(options.run, folder)
        if options.overview is not None:
            held = read_results(folder)
            text = with_excerpt(options.overview.read_text("utf-8"), options.folder, held)
            write_bytes(options.overview, text.encode())
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
