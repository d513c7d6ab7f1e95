"""What of a run may be kept under version control: its numbers and figures, never its sentences.

``python -m ropewalk.lab.report.publish RUN_FOLDER FOLDER`` writes them; with a README as third
argument, the table between its marks ``<!-- result: FOLDER -->`` and ``<!-- end -->`` is written
anew too. ``--readme FOLDER… [--overview README]`` writes the READMEs of published folders anew from
their ``results.json``, when their words have changed; numbers and pictures stay as they are.
``--retest FOLDER… [--against NAME]`` tests published scores anew, and writes all that follows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.figures import static
from ropewalk.figures.html import without_nan
from ropewalk.files import MOST_DATA_BYTES, Facts, read_json, write_bytes
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes
from ropewalk.lab.report.metrics import (
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)
from ropewalk.lab.report.readme import PICTURES, readme, with_excerpt
from ropewalk.lab.results import read_results, read_summary, read_tuning
from ropewalk.lab.tasks import CLASSES
from ropewalk.lab.verdicts import add_verdicts


def publish(run: Path, folder: Path) -> None:
    """Write ``results.json``, figures and a README made from them into ``folder``.

    The same run gives the same bytes. A run without ``results.json`` is a ``ValueError``.
    """
    if not (run / "results.json").exists():
        raise ValueError(f"run must be a finished run's folder, got {run}: it has no results.json")
    results = without_nan(read_results(run))
    maps = run / "attention.json"
    attention = read_summary(maps, most_bytes=MOST_DATA_BYTES) if maps.exists() else None
    pictures = figures(results, attention)
    write_bytes(folder / "results.json", (readable_json(results) + "\n").encode())
    for name, content in pictures.items():
        write_bytes(folder / name, content)
    tuning = read_tuning(run)
    if tuning is not None:
        write_bytes(folder / "tuning.json", (readable_json(tuning) + "\n").encode())
    write_bytes(folder / "README.md", readme(results, list(pictures), tuning).encode())


def rewrite_readme(folder: Path) -> None:
    """Write a published folder's README anew from its ``results.json``; its pictures are kept.

    A folder that holds no comparison is a ``ValueError``.
    """
    results = _published(folder)
    pictures = [name for name in PICTURES if (folder / name).exists()]
    text = readme(results, pictures, read_tuning(folder))
    write_bytes(folder / "README.md", text.encode())


def retest(folder: Path, against: Sequence[str] | None = None) -> None:
    """Test a published folder's scores anew, and write numbers, score figures and README.

    against: encodings to test against besides the first; those of last time if not given. A folder
    that holds no comparison, and a name that it does not have, are a ``ValueError``.
    """
    results = _published(folder)
    results["metrics"] = [metric.facts() for metric in CLASSES[results["task"]].metrics]
    add_verdicts(results, results.get("against", ()) if against is None else against)
    for row in results["encodings"]:
        row.pop("equal_time", None)
    write_bytes(folder / "results.json", (readable_json(results) + "\n").encode())
    for name, figure in _score_figures(results).items():
        write_bytes(folder / name, static.png(figure))
    rewrite_readme(folder)


def _published(folder: Path) -> Facts:
    path = folder / "results.json"
    if not path.exists() or "ropewalk" not in read_json(path):
        raise ValueError(f"folder must hold a published comparison, got {folder}")
    return read_results(folder)


def figures(results: Facts, attention: Facts | None) -> dict[str, bytes]:
    """Draw the figures of a run, file name -> PNG."""
    training, validation = (curves(results, kind) for kind in ("training", "validation"))
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
        drawn["score-by-length.png"] = static.score_by_length(**by_multiple(results))
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


def write_excerpt(overview: Path, folder: str) -> None:
    """Write a folder's headline and table between its marks in a README."""
    text = with_excerpt(overview.read_text("utf-8"), folder, read_results(Path(folder)))
    write_bytes(overview, text.encode())


def _rewrite_overview(overview: Path | None, folders: Sequence[str]) -> None:
    """Write the excerpts of those folders that a README has marks for."""
    if overview is None:
        return
    text = overview.read_text("utf-8")
    for folder in folders:
        if f"<!-- result: {folder} -->" in text:
            write_excerpt(overview, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish a run, and write its table into a README where one is named."""
    program = "python -m ropewalk.lab.report.publish"
    parser = argparse.ArgumentParser(prog=program, description="Publish a run.")
    parser.add_argument("run", type=Path, nargs="?", help="folder of a finished run")
    parser.add_argument("folder", nargs="?", help="where results.json, figures and README go")
    parser.add_argument("overview", type=Path, nargs="?", help="a README with marks for the table")
    parser.add_argument(
        "--readme", nargs="+", metavar="FOLDER", help="write these READMEs anew, and nothing else"
    )
    parser.add_argument(
        "--retest", nargs="+", metavar="FOLDER", help="test the scores in these anew"
    )
    parser.add_argument(
        "--against", action="append", metavar="NAME", help="with --retest: this encoding too"
    )
    parser.add_argument(
        "--overview",
        type=Path,
        dest="marked",
        metavar="README",
        help="with --readme and --retest: as above",
    )
    options = parser.parse_args(arguments)
    try:
        if options.readme is not None or options.retest is not None:
            if options.run is not None:
                raise ValueError("--readme and --retest take their folders behind them, and no run")
            for folder in options.readme or ():
                rewrite_readme(Path(folder))
            for folder in options.retest or ():
                retest(Path(folder), options.against)
            _rewrite_overview(options.marked, [*(options.readme or ()), *(options.retest or ())])
            return
        if options.folder is None:
            raise ValueError("a run and a folder are needed, or --readme with folders")
        publish(options.run, Path(options.folder))
        if options.overview is not None:
            write_excerpt(options.overview, options.folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
