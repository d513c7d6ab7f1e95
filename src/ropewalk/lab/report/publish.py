"""Publish a run in a folder for version control: numbers and figures, never corpus sentences.

`python -m ropewalk.lab.report.publish RUN_FOLDER FOLDER` writes the folder in the form that
`ropewalk.lab.published` describes, with the answers if the project generates the data. With a
README as third argument, the table between its marks `<!-- result: FOLDER -->` and `<!-- end -->`
is rewritten too. `--add` adds the run's cells to a published folder of the same comparison.
`--readme FOLDER… [--overview README]` rewrites the READMEs of published folders from their numbers,
for when the wording has changed; numbers and pictures stay as they are. `--retest FOLDER…
[--against NAME]` repeats the tests on published scores, and rewrites what depends on them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.figures import static
from ropewalk.figures.html import without_nan
from ropewalk.files import MOST_DATA_BYTES, Facts, read_json, readable_json, write_bytes
from ropewalk.lab.published import write_published
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes
from ropewalk.lab.report.hypotheses import free_hypotheses, write_hypotheses
from ropewalk.lab.report.metrics import (
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)
from ropewalk.lab.report.parts import other_versions, with_part
from ropewalk.lab.report.readme import PICTURES, readme, with_excerpt
from ropewalk.lab.results import read_results, read_summary, read_tuning
from ropewalk.lab.tasks import CLASSES
from ropewalk.lab.verdicts import add_verdicts


def publish(run: Path, folder: Path) -> None:
    """Write `results.json`, `encodings/`, figures and a README into `folder`.

    The same run gives the same bytes. Raises ValueError if the run has no `results.json`.
    """
    results = _results_of_run(run)
    write_published(folder, results)
    write_hypotheses(folder, free_hypotheses(run, results), keep=False)
    tuning = read_tuning(run)
    if tuning is not None:
        write_bytes(folder / "tuning.json", (readable_json(tuning) + "\n").encode())
    pictures = _draw(folder)
    write_bytes(folder / "README.md", readme(read_results(folder), pictures, tuning).encode())


def add(run: Path, folder: Path) -> list[str]:
    """Add a run's cells to the published ones in `folder`, and rewrite what depends on them.

    Returns which packages had other versions. `tuning.json` stays as it is. Raises ValueError that
    says what differs if the run is of another comparison; then nothing is written.
    """
    if not (folder / "results.json").exists():
        publish(run, folder)
        return []
    results, part = _published(folder), _results_of_run(run)
    whole = with_part(results, part)
    readme(whole, [], None)  # an error is raised before anything is written
    write_published(folder, whole)
    write_hypotheses(folder, free_hypotheses(run, part), keep=True)
    _draw(folder)
    rewrite_readme(folder)
    return other_versions(results, part)


def _results_of_run(run: Path) -> Facts:
    """Return the published part of a run: its results, the data's digest and attention."""
    if not (run / "results.json").exists():
        raise ValueError(f"run must be a finished run's folder, got {run}: it has no results.json")
    results: Facts = without_nan(read_results(run))
    corpus, maps = run / "corpus.json", run / "attention.json"
    if corpus.exists():
        results["data_digest"] = read_summary(corpus, "digest")["digest"]
    for held in results["config"].get(
        "imports", ()
    ):  # the digest identifies the file; its path stays private
        held["source"] = Path(held["source"]).name
    attention = read_summary(maps, most_bytes=MOST_DATA_BYTES) if maps.exists() else None
    for row in results["encodings"]:
        weights = _middle_attention(results, attention, row["slug"])
        row |= {} if weights is None else {"attention": weights}
    return results


def _draw(folder: Path) -> list[str]:
    """Draw the figures of a published folder, and return the names of the pictures.

    The old picture of attention stays if the weights of one of its encodings are not known.
    """
    results = read_results(folder)
    pictures = figures(results)
    known = ("attention" in row or _has_no_model(row) for row in results["encodings"])
    if (folder / "attention.png").exists() and not all(known):
        pictures.pop("attention.png", None)
    for name, content in pictures.items():
        write_bytes(folder / name, content)
    return [name for name in PICTURES if name in pictures]


def rewrite_readme(folder: Path) -> None:
    """Rewrite a published folder's README from its `results.json`; its pictures stay.

    Raises ValueError if the folder has no comparison.
    """
    results = _published(folder)
    pictures = [name for name in PICTURES if (folder / name).exists()]
    text = readme(results, pictures, read_tuning(folder))
    write_bytes(folder / "README.md", text.encode())


def retest(folder: Path, against: Sequence[str] | None = None) -> None:
    """Repeat the tests on a published folder's scores; rewrite numbers, score figures and README.

    against: encodings to test against besides the first; if not given, those of last time. Raises
    ValueError if the folder has no comparison, or no encoding of such a name.
    """
    results = _published(folder)
    results["metrics"] = [metric.facts() for metric in CLASSES[results["task"]].metrics]
    add_verdicts(results, results.get("against", ()) if against is None else against)
    for row in results["encodings"]:
        row.pop("equal_time", None)
    write_published(folder, results)
    for name, figure in _score_figures(results).items():
        write_bytes(folder / name, static.png(figure))
    rewrite_readme(folder)


def _published(folder: Path) -> Facts:
    path = folder / "results.json"
    if not path.exists() or "ropewalk" not in read_json(path):
        raise ValueError(f"folder must contain a published comparison, got {folder}")
    return read_results(folder)


def figures(results: Facts) -> dict[str, bytes]:
    """Return the figures of published results, file name -> PNG."""
    training, validation = (curves(results, kind) for kind in ("training", "validation"))
    drawn = _score_figures(results)
    drawn["loss.png"] = static.loss_curves(training, validation, "steps")
    maps = {
        row["name"]: row["attention"]["weights"]
        for row in results["encodings"]
        if "attention" in row
    }
    if maps:
        drawn["attention.png"] = static.attention_heads(maps)
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


def _has_no_model(row: Facts) -> bool:
    """Return whether there is no model to show attention of: the first seed's run diverged."""
    return bool(row["cells"][0]["status"] == "diverged")


def _middle_attention(results: Facts, attention: Facts | None, slug: str) -> Facts | None:
    """Return an encoding's self-attention on the middle example, or None without a model."""
    if not attention or slug not in attention["encodings"] or not attention["sentences"]:
        return None
    middle, held = len(attention["sentences"]) // 2, attention["encodings"][slug]
    site = "encoder" if is_translation(results) else "self"
    return {
        "seed": held["seed"],
        "index": attention["sentences"][middle]["index"],
        "weights": held["sentences"][middle][site]["weights"],
    }


def write_excerpt(overview: Path, folder: str) -> None:
    """Rewrite a folder's headline and table between its marks in a README."""
    text = with_excerpt(overview.read_text("utf-8"), folder, read_results(Path(folder)))
    write_bytes(overview, text.encode())


def _rewrite_overview(overview: Path | None, folders: Sequence[str]) -> None:
    """Rewrite the excerpts of the folders that a README has marks for."""
    if overview is None:
        return
    text = overview.read_text("utf-8")
    for folder in folders:
        if f"<!-- result: {folder} -->" in text:
            write_excerpt(overview, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish a run, and write its table into a README if one is given."""
    program = "python -m ropewalk.lab.report.publish"
    parser = argparse.ArgumentParser(prog=program, description="Publish a run.")
    parser.add_argument("run", type=Path, nargs="?", help="folder of a finished run")
    parser.add_argument("folder", nargs="?", help="folder for results.json, figures and README")
    parser.add_argument("overview", type=Path, nargs="?", help="a README with marks for the table")
    parser.add_argument(
        "--add", action="store_true", help="add the run's cells to those in the folder"
    )
    parser.add_argument("--readme", nargs="+", metavar="FOLDER", help="rewrite these READMEs only")
    parser.add_argument(
        "--retest", nargs="+", metavar="FOLDER", help="repeat the tests on the scores in these"
    )
    parser.add_argument(
        "--against",
        action="append",
        metavar="NAME",
        help="with --retest: test against this encoding too",
    )
    parser.add_argument(
        "--overview",
        type=Path,
        dest="marked",
        metavar="README",
        help="with --readme and --retest: a README with marks for the table",
    )
    options = parser.parse_args(arguments)
    try:
        if options.readme is not None or options.retest is not None:
            if options.run is not None or options.add:
                raise ValueError(
                    "--readme and --retest take only their own folders, not a run or --add"
                )
            for folder in options.readme or ():
                rewrite_readme(Path(folder))
            for folder in options.retest or ():
                retest(Path(folder), options.against)
            _rewrite_overview(options.marked, [*(options.readme or ()), *(options.retest or ())])
            return
        if options.folder is None:
            raise ValueError("give a run and a folder, or --readme or --retest with folders")
        if options.add:
            for text in add(options.run, Path(options.folder)):
                print(f"warning: {text}", file=sys.stderr)
        else:
            publish(options.run, Path(options.folder))
        if options.overview is not None:
            write_excerpt(options.overview, options.folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
