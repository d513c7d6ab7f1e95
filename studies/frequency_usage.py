"""Which frequencies the heads of models trained here use, and what p-RoPE would cost them.

`python studies/frequency_usage.py RUN_FOLDER` reads a finished run of `ropewalk compare --task
causal-lm`, measures its `rotary` models of all seeds on windows of the test text, and writes
results/frequency-usage: the numbers of `ropewalk usage`, a heat map of the first seed and a README.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import GENERATED, RESULTS, finished_run, markdown_table, shown, write_study

from ropewalk.files import Facts
from ropewalk.lab.models import load_model
from ropewalk.lab.results import read_results
from ropewalk.lab.tasks import open_task
from ropewalk.machine import commit, versions
from ropewalk.tools import usage
from ropewalk.tools.usage.head_usage import Cost, Head, Layer, Usage
from ropewalk.tools.usage.usage_report import bands, shares_of, usage_picture

FOLDER = RESULTS / "frequency-usage"
WINDOWS = 128  # of the test text, each of the trained length
ENCODING = "rotary"
DIGITS = 6


def study_run(run: Path) -> Facts:
    """Measure the models of every seed."""
    results = read_results(run)
    config = results.config
    ids = open_task(config, run).data["test"]  # type: ignore[attr-defined]
    count = min(WINDOWS, len(ids) // config.train_length)
    tokens = ids[: count * config.train_length].unflatten(0, (count, config.train_length))
    row = results.row(ENCODING)
    seeds = {}
    for cell in row.cells:
        path = row.cell(cell.seed).folder(run) / "model.safetensors"
        model, _ = load_model(path, torch.device("cpu"))
        seeds[str(cell.seed)] = _rounded(usage(model, tokens).to_dict())
    return {
        "asked": results.command,
        "commit": commit(),
        "versions": versions(),
        "config": config.facts(),
        "encoding": ENCODING,
        "seeds": seeds,
    }


def usages(results: Facts) -> dict[str, Usage]:
    """Return what `usage` found, by seed."""
    return {seed: _usage(held) for seed, held in results["seeds"].items()}


def _usage(held: Facts) -> Usage:
    layers = [
        Layer(**{**each, "heads": tuple(Head(**head) for head in each["heads"])})
        for each in held["layers"]
    ]
    costs = [Cost(**each) for each in held["costs"]]
    return Usage(**{**held, "layers": tuple(layers), "costs": tuple(costs)})


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def norms_table(found: dict[str, Usage]) -> str:
    """Return the shares of the squared norm in each band, means over seeds, as Markdown."""
    first = next(iter(found.values()))
    fast, medium = bands(first.length)
    head = [
        "", f"fast, up to {fast:.0f} tokens", f"medium, up to {medium:.0f}",
        f"slow, above {medium:.0f}",
    ]  # fmt: skip
    rows = []
    for place, layer in enumerate(first.layers):
        shares = [shares_of(each.layers[place], each.length) for each in found.values()]
        for name, held in (("q", [each.q for each in shares]), ("k", [each.k for each in shares])):
            means = [sum(of) / len(of) for of in zip(*held, strict=True)]
            rows.append([f"layer {layer.layer}, {name}", *(f"{share:.0%}" for share in means)])
    rows.append(["of the pairs", *(f"{share:.0%}" for share in shares[0].even)])
    return markdown_table(head, rows)


def heads_table(found: dict[str, Usage]) -> str:
    """Return what distance explains of the scores of each head, as Markdown."""
    rows = []
    for seed, each in found.items():
        cells = []
        for layer in each.layers:
            shares = [
                f"**{head.position_share:.0%}**" if head.kind else f"{head.position_share:.0%}"
                for head in layer.heads
            ]
            cells.append(" · ".join(shares))
        rows.append([f"seed {seed}", *cells])
    names = [f"layer {layer.layer}" for layer in next(iter(found.values())).layers]
    return markdown_table(["", *names], rows)


def cost_table(found: dict[str, Usage]) -> str:
    """Return the cost of p-RoPE for each seed, with intervals, as Markdown."""
    first = next(iter(found.values()))
    head = ["p", "pairs that rotate", "wavelengths up to", *(f"seed {seed}" for seed in found)]
    rows = []
    for place, cost in enumerate(first.costs):
        count, waves = cost.rotating[0], first.layers[0].wavelengths
        cells = []
        for each in found.values():
            one = each.costs[place]
            said = f"loss {one.loss:.4f}"
            if one.fraction < 1:
                ends = (one.difference, one.low, one.high)
                digits = 4 if all(abs(end) >= 5e-5 for end in ends) else 5
                said = "{} ({} to {})".format(*(_signed(end, digits) for end in ends))
            cells.append(said)
        longest = f"{waves[count - 1]:,.0f}" if count else "–"
        rows.append([f"{cost.fraction:g}", f"{count} of {len(waves)}", longest, *cells])
    return markdown_table(head, rows)


def _signed(number: float, digits: int) -> str:
    text = f"{number:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    found, config = usages(results), results["config"]
    first = next(iter(found.values()))
    parts = [
        "# Which frequencies a small model uses",
        GENERATED,
        f"`{results['encoding']}` models of {config['layers']} layers, width {config['width']}, "
        f"trained to predict the next token in windows of {config['train_length']} tokens "
        f"({config['data']}), read {first.rows} windows of the test text. The "
        f"[page](../../docs/frequency-usage.md) says how it is measured, and what it shows. "
        f"Commands:",
        f"```sh\n{results['asked']}\n{results['command']}\n```",
        "## Squared norm by wavelength",
        f"Means of {len(found)} seeds and of the heads of a layer.",
        norms_table(found),
        f"The picture shows the model of seed {next(iter(found))} alone:",
        shown("norms", usage_picture(first)),
        "## Heads",
        "The share of the variance of scores that distance alone explains, for each head. Bold: at "
        "least 50 % (position-like) or at most 10 % (content-like), before rounding.",
        heads_table(found),
        "## p-RoPE without training",
        "The loss (nats per token) if only the fastest pairs rotate: its change, with a 95 % "
        "interval from a bootstrap over blocks of at most 32 tokens.",
        cost_table(found),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study the run and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=finished_run, help="a finished causal-lm run")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    results = study_run(options.run)
    picture = usage_picture(next(iter(usages(results).values())))
    write_study(options.out, results, readme, {"norms": picture})


if __name__ == "__main__":
    main()
