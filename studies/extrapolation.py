"""How each encoding, and each scaling rule of rotary, works beyond the trained length.

`python studies/extrapolation.py RUN_FOLDER …` reads finished runs of `ropewalk compare --task`
(causal-lm and generated sequences), tries every scaling rule on their rotary models without further
training, and writes results/extrapolation, or another folder, with a README made of the numbers.
A published folder has no models: its scores are read, and the rules' are kept and tested again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import GENERATED, RESULTS, finished_run, markdown_table, shown, write_study
from extrapolation_rules import compare_rules, tests_table, try_rules

from ropewalk.figures import Picture, score_by_length
from ropewalk.files import Facts, read_json
from ropewalk.lab.report.formats import column_title, format_number
from ropewalk.lab.results import MetricFacts, read_results
from ropewalk.machine import commit, versions

FOLDER = RESULTS / "extrapolation"


def scores_of(run: Path) -> Facts:
    """Return a run's headline score of each encoding at each length, for every seed."""
    results = read_results(run)
    metric, lengths = results.headline_metric, results.lengths
    assert lengths is not None
    rows = {
        row.name: {
            split: [cell.scores[split].score(metric.key) for cell in row.cells]
            for split in results.splits
        }
        for row in results.encodings
    }
    return {
        "task": results.task,
        "asked": results.command,
        "metric": metric.as_json(),
        "trained": lengths.trained,
        "unit": lengths.unit,
        "rows": rows,
    }


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    runs = results["runs"]
    parts = [
        "# Beyond the trained length",
        GENERATED,
        "Each encoding was trained up to one length and scored at multiples of it. A dash means no "
        "result: the encoding has no such positions, its vector for each such position was never "
        "trained, the task has no such size, or it was not tried. Encodings with trained rows for "
        "distances or counts (`t5`, `deberta`, `shaw`, `cope`) have no dash, although rows for the "
        "farthest ones may never have been trained. Small numbers are single seeds. "
        "The README of each run tests the encodings against one or two of them, not all pairs.",
        "\n".join(["```sh", *(run["asked"] for run in runs), results["command"], "```"]),
    ]
    if ".py results/" in results["command"] and any(run["rules"] for run in runs):
        parts += [
            "The last command reads the published scores, and keeps the earlier scores of scaling "
            "rules. The same script made those from the folders in `runs/`, which have the models."
        ]
    if len(runs) > 1:
        parts += [_overview(runs)]
    for place, run in enumerate(runs, 1):
        metric = MetricFacts.model_validate(run["metric"])
        better = "higher" if metric.higher_is_better else "lower"
        parts += [
            f"## {run['task']}",
            f"{column_title(metric)}, {better} is better; trained on {run['trained']} "
            f"{run['unit']}.",
            _by_length(run["rows"], metric.digits),
            shown(f"by-length-{place}", length_picture(run)),
        ]
        if run["rules"] is not None:
            parts += [
                f"Scaling rules of rotary, without further training: {_ruled_models(run)}, trained "
                f"on at most {run['rules']['trained_tokens']} tokens with plain rotary "
                "(`none` here). At m times the length a rule scales by m, DynamicNTK (factor 2) by "
                "2m − 1. "
                "At the trained length every rule is plain rotary, so none was tried.",
                _by_length(run["rules"]["scores"], run["metric"]["digits"]),
                tests_table(run["rules"]),
            ]
    if any(run["rules"] for run in runs):
        parts += [
            "LongRoPE is not among the rules: its factors are searched for one model, so there is "
            "nothing to try."
        ]
    return "\n\n".join(parts) + "\n"


def _ruled_models(run: Facts) -> str:
    """Say with which models the rules were tried: published folders can have gained seeds."""
    tried = len(next(iter(run["rules"]["scores"]["none"].values())))
    trained = len(next(iter(run["rows"]["rotary"].values())))
    return (
        "the models above" if tried == trained else f"the models above of the first {tried} seeds"
    )


def _overview(runs: Sequence[Facts]) -> str:
    """Return a table of every task's mean scores at its first two lengths."""
    names = dict.fromkeys(name for run in runs for name in run["rows"])
    lines = [[f"`{name}`", *(_first_two(run, name) for run in runs)] for name in names]
    head = [f"{run['task']}, {run['metric']['unit'] or run['metric']['name']}" for run in runs]
    title = "Means over seeds, at a task's first length → at its second:"
    return f"{title}\n\n{markdown_table(['', *head], lines)}"


def _first_two(run: Facts, name: str) -> str:
    row, splits = run["rows"].get(name, {}), _splits(run["rows"])[:2]
    means = [_mean(row.get(split, [])) for split in splits]
    return " → ".join(format_number(mean, run["metric"]["digits"]) for mean in means)


def _splits(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(next(iter(rows.values())))


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean over seeds, or None if a seed has no result."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _by_length(rows: Mapping[str, Mapping[str, list[float | None]]], digits: int) -> str:
    splits = _splits(rows)
    lines = [
        [f"`{name}`", *(_cell(row.get(split, []), digits) for split in splits)]
        for name, row in rows.items()
    ]
    return markdown_table(["", *(f"×{split.removeprefix('x')}" for split in splits)], lines)


def _cell(values: Sequence[float | None], digits: int) -> str:
    mean = format_number(_mean(values), digits)
    if _mean(values) is None or len(values) == 1:
        return mean
    return f"{mean}<br><sub>{' · '.join(format_number(value, digits) for value in values)}</sub>"


def length_picture(run: Facts) -> Picture:
    """Return the score of each encoding against length."""
    splits = _splits(run["rows"])
    seeds = {
        name: list(zip(*(row[split] for split in splits), strict=True))
        for name, row in run["rows"].items()
    }
    return score_by_length(
        [f"×{split.removeprefix('x')}" for split in splits],
        seeds,
        f"length, as a multiple of {run['trained']} {run['unit']}",
        column_title(MetricFacts.model_validate(run["metric"])),
        logarithmic=not run["metric"]["higher_is_better"],
    )


def pictures_of(results: Facts) -> dict[str, Picture]:
    """Return the pictures of all runs by name."""
    return {
        f"by-length-{place}": length_picture(run) for place, run in enumerate(results["runs"], 1)
    }


def _rules(run: Path, folder: Path) -> Facts | None:
    """Try the rules on a run's models; for a published folder return the existing results."""
    if (run / "config.json").exists():
        return try_rules(run)
    results, written = read_results(run), folder / "results.json"
    runs = read_json(written)["runs"] if written.exists() else []
    rules = next((held["rules"] for held in runs if held["task"] == results.task), None)
    if rules is not None and "statistics" in rules:
        rules = {**rules, "tests": compare_rules(results, rules["statistics"])}
    return rules


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs, try the rules, and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=finished_run, nargs="+", help="folders of finished runs")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    results: Facts = {
        "commit": commit(),
        "versions": versions(),
        "runs": [{**scores_of(run), "rules": _rules(run, options.out)} for run in options.runs],
    }
    write_study(options.out, results, readme, pictures_of(results))


if __name__ == "__main__":
    main()
