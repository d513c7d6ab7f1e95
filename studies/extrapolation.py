"""How far each encoding reaches past the length it was trained on, and each rule of rotary's.

``python studies/extrapolation.py RUN_FOLDER …`` reads finished runs of ``ropewalk compare --task``
(causal-lm and generated sequences), tries every scaling rule on causal-lm's rotary models without
further training, and writes results/extrapolation with a README made of the numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from keeping import GENERATED, RESULTS, Facts, finished_run, keep, table

from ropewalk.figures import static
from ropewalk.figures.palette import style
from ropewalk.lab.checkpoint import load_weights, read_json, read_tensors
from ropewalk.lab.config import Config
from ropewalk.lab.folders import Cell
from ropewalk.lab.models import build_model
from ropewalk.lab.tasks import open_task
from ropewalk.machine import commit, versions

FOLDER = RESULTS / "extrapolation"
#: Each rule with the factor m by which a sequence is longer than the L tokens trained on.
#: LongRoPE is not among them: its factors are searched for a model, and no other has them.
RULES = {
    "none": "rotary",
    "Linear": "rotary(rule=linear, factor={m})",
    "NTKAware": "rotary(rule=ntkaware, factor={m})",
    "DynamicNTK": "rotary(rule=dynamicntk, factor=2, original_length={L}, length={n})",
    "YaRN": "rotary(rule=yarn, factor={m}, original_length={L})",
    "Llama3": "rotary(rule=llama3, factor={m}, low_freq_factor=1, high_freq_factor=4, "
    "original_length={L})",
}


def rules_tried(run: Path) -> Facts | None:
    """Score a run's rotary models at each length under each rule; None where it has no rotary."""
    results = read_json(run / "results.json")
    config = Config.model_validate(results["config"])
    if config.task != "causal-lm" or "rotary" not in config.encodings:
        return None
    task = open_task(config, run)
    found: dict[str, dict[str, list[float]]] = {}
    for rule, written in RULES.items():
        found[rule] = {}
        for split in task.splits:
            multiple = int(split.removeprefix("x"))
            if multiple == 1 and rule != "none":
                continue  # every rule is the plain rope where nothing is to be stretched
            length = multiple * config.length
            encoding = written.format(m=multiple, L=config.length, n=length)
            found[rule][split] = [
                _perplexity(config, task, run, seed, encoding, split) for seed in config.seeds
            ]
    return {"trained": config.length, "perplexity": found}


def _perplexity(
    config: Config, task: Any, run: Path, seed: int, encoding: str, split: str
) -> float:
    path = Cell("rotary", seed).folder(run) / "model.safetensors"
    model = build_model(config, encoding, seed, task.vocabulary)
    load_weights(model, read_tensors(path)[0])  # a rope has no parameters that could be missing
    with tempfile.TemporaryDirectory() as scratch:
        statistics = task.evaluate(model, split, Path(scratch))["statistics"]
    total = torch.tensor(statistics["nll"]).double().sum() / sum(statistics["tokens"])
    return round(total.exp().item(), 4)


def tables_of(run: Path) -> Facts:
    """Give a run's headline score of each encoding at each length, every seed."""
    results = read_json(run / "results.json")
    metric = results["metrics"][0]
    rows = {
        row["name"]: {
            split: [cell["scores"][split].get(metric["key"]) for cell in row["cells"]]
            for split in results["splits"]
        }
        for row in results["encodings"]
    }
    return {
        "task": results["config"]["task"],
        "asked": results["command"],
        "metric": metric,
        "trained": results["lengths"]["trained"],
        "unit": results["lengths"]["unit"],
        "rows": rows,
    }


def readme(results: Facts) -> str:
    """Write the README of the results folder out of its numbers alone."""
    parts = [
        "# Past the trained length",
        GENERATED,
        "Each encoding, trained at one length and scored at that length and at two, four and eight "
        "times that. A dash: no result, since the encoding has no such positions. Small numbers "
        "are seeds. What differs by more than chance stands in each task's own table.",
        "\n".join(["```sh", *(run["asked"] for run in results["runs"]), results["command"], "```"]),
    ]
    for number, run in enumerate(results["runs"]):
        better = "higher" if run["metric"]["higher_is_better"] else "lower"
        parts += [
            f"## {run['task']}",
            f"{run['metric']['name']}, {better} is better; trained on {run['trained']} "
            f"{run['unit']}.",
            _by_length(run["rows"], run["metric"]["digits"]),
            f"![{run['task']} by length](by-length-{number + 1}.png)",
        ]
    rules = results["rules"]
    if rules is not None:
        parts += [
            "## Rules of rotary, without further training",
            f"Perplexity of the causal-lm models above, trained on {rules['trained']} tokens with "
            "plain rotary; at m times that length the rule stretches by m. LongRoPE's factors are "
            "searched for one model, so that there is nothing to try.",
            _by_length(rules["perplexity"], 2),
        ]
    return "\n\n".join(parts) + "\n"


def _by_length(rows: dict[str, dict[str, list[float | None]]], digits: int) -> str:
    splits = list(next(iter(rows.values())))
    lines = [
        [f"`{name}`", *(_cell(row.get(split, []), digits) for split in splits)]
        for name, row in rows.items()
    ]
    return table(["", *(f"×{split.removeprefix('x')}" for split in splits)], lines)


def _cell(values: list[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "–"
    said = f"{sum(known) / len(known):,.{digits}f}"
    seeds = " · ".join(f"{value:,.{digits}f}" for value in known)
    return f"{said}<br><sub>{seeds}</sub>" if len(known) > 1 else said


def drawn(run: Facts) -> bytes:
    """Draw the mean score of each encoding against length."""
    figure = static.new_figure(7.0, 3.6)
    axes = figure.subplots()
    for place, (name, row) in enumerate(run["rows"].items()):
        points = [
            (int(split.removeprefix("x")), sum(values) / len(values))
            for split, values in row.items()
            if values and None not in values
        ]
        look = style(place)
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=look.colour,
            marker=look.marker,
            markersize=4,
            linewidth=1,
            label=name,
        )
    multiples = [int(split.removeprefix("x")) for split in next(iter(run["rows"].values()))]
    axes.set_xscale("log", base=2)
    axes.set_xticks(multiples, [f"×{multiple}" for multiple in multiples])
    if not run["metric"]["higher_is_better"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel(f"length, as a multiple of {run['trained']} {run['unit']}")
    axes.set_ylabel(run["metric"]["name"])
    static.calm(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right", fontsize=7)
    return static.png(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Gather the runs, try the rules, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=finished_run, nargs="+", help="folders of finished runs")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    tried = [found for run in options.runs if (found := rules_tried(run)) is not None]
    results: Facts = {
        "commit": commit(),
        "versions": versions(),
        "runs": [tables_of(run) for run in options.runs],
        "rules": tried[0] if tried else None,
    }
    figures = [drawn(run) for run in results["runs"]]
    pictures = {f"by-length-{number}.png": figure for number, figure in enumerate(figures, 1)}
    keep(options.out, results, readme, pictures)


if __name__ == "__main__":
    main()
