"""What of a run may be kept under version control: its numbers and figures, never its sentences.

``python -m ropewalk.lab.report.publish RUN_FOLDER FOLDER`` writes them; with a README as third
argument, the table between its marks ``<!-- result: FOLDER -->`` and ``<!-- end -->`` is written
anew too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.figures import static
from ropewalk.figures.html import without_nan
from ropewalk.files import Facts, read_json, write_bytes
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes
from ropewalk.lab.report.metrics import (
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)
from ropewalk.lab.report.readme import readme, with_excerpt
from ropewalk.lab.results import read_results, read_tuning


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
    drawn = _score_figures(results)
    drawn["loss.png"] = static.loss_curves(training, validation, "steps")
    heads = _attention_heads(results, attention)
    if heads:
        drawn["attention.png"] = static.attention_heads(heads)
    return {name: static.png(figure) for name, figure in drawn.items()}


def _score_figures(results: Facts) -> dict[str, Any]:
    split = results["splits"][0]
    if is_translation(results):
        return {
            "bleu.png": static.score_by_encoding(outcomes(results, split)),
            "bleu-by-length.png": static.score_by_length(*by_length(results, split)),
        }
    metric, tested = headline_metric(results), tested_metric(results)
    other = tested["name"] if tested != metric else ""
    title = column_title(metric, split)
    drawn = {"score.png": static.score_by_encoding(outcomes(results, split), title, other)}
    if len(results["splits"]) > 1:
        drawn["score-by-length.png"] = static.score_by_length(
            *by_multiple(results),
            results["lengths"]["unit"],
            column_title(metric),
            logarithmic=metric["key"] == "perplexity",
        )
    return drawn


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


def _attention_heads(
    results: Facts, attention: Facts | None
) -> dict[str, list[list[list[list[float]]]]]:
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
