"""Common parts of the studies: their folder, and writing of results."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ropewalk.figures import Picture
from ropewalk.figures.picture import picture_html
from ropewalk.files import Facts, read_json, readable_json, write_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results"
FORM = "png"
GENERATED = "<!-- Generated from results.json; the next run overwrites it. -->"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown of cells that are Markdown, numbers in all columns but one."""
    rule = ["---", *["--:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))


def with_marked_part(text: str, mark: str, body: str) -> str:
    """Return a page's text with a body between the lines `<!-- mark -->` and `<!-- end -->`."""
    marks = rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)"
    new, replaced = re.subn(marks, lambda m: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
    if not replaced:
        raise ValueError(f"the page must have marks <!-- {mark} --> and <!-- end -->; it has not")
    return new


def finished_run(text: str) -> Path:
    """Return a command-line path, which must be the folder of a finished run."""
    run = Path(text)
    if not (run / "results.json").exists():
        raise argparse.ArgumentTypeError(f"must be a finished run's folder, got {text}")
    return run


def study_models(
    about: str,
    study: Callable[[Path], Facts],
    readme: Callable[[Facts], str],
    folder: Path,
    arguments: Sequence[str] | None = None,
) -> None:
    """Study the models of the causal-lm run that the command line names, and write the folder.

    about: the script's docstring, whose first line is its help text.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("run", type=finished_run, help="folder of a finished causal-lm run")
    parser.add_argument("--out", type=Path, default=folder)
    options = parser.parse_args(arguments)
    write_study(options.out, study(options.run), readme)


def study_one_run(
    about: str,
    study: Callable[[Path, str | None], Facts],
    readme: Callable[[Facts], str],
    folder: Path,
    arguments: Sequence[str] | None = None,
    added: Callable[[Facts, Facts], Facts] | None = None,
) -> None:
    """Study a split of the run that the command line names, and write the results folder.

    about: the script's docstring, whose first line is its help text; added: merges the new results
    into the existing ones, for a study that has `--add`.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("run", type=finished_run, help="folder of a finished translation run")
    parser.add_argument("--split", help="default: the first test split")
    parser.add_argument("--out", type=Path, default=folder)
    if added is not None:
        parser.add_argument(
            "--add", action="store_true", help="keep existing results of other runs"
        )
    options = parser.parse_args(arguments)
    results, there = study(options.run, options.split), options.out / "results.json"
    if added is not None and options.add and there.exists():
        held = read_json(there)
        results = {**added(held, results), "command": held["command"]}
    write_study(options.out, results, readme)


def write_study(
    folder: Path,
    results: Facts,
    readme: Callable[[Facts], str],
    pictures: Mapping[str, Picture] | None = None,
) -> None:
    """Write results with the command that made them, pictures in both schemes, and the README.

    Commands that are already in the results made some of them, and are kept.
    """
    commands = [*results.get("command", "").splitlines(), shlex.join(["python", *sys.argv])]
    results["command"] = "\n".join(dict.fromkeys(commands))
    write_bytes(folder / "results.json", (readable_json(results) + "\n").encode())
    write_pictures(folder, pictures or {})
    write_bytes(folder / "README.md", readme(results).encode())
    print(folder / "README.md")


def write_pictures(folder: Path, pictures: Mapping[str, Picture]) -> None:
    """Write pictures, light and dark."""
    for stem, picture in pictures.items():
        for name, content in picture.both(stem, FORM).items():
            write_bytes(folder / name, content)


def shown(stem: str, picture: Picture) -> str:
    """Return what a README says to show one of these pictures."""
    return picture_html(stem, FORM, picture.alt)
