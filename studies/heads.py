"""A head of a model trained here that looks at the previous token, and the pairs that make it.

`python studies/heads.py RUN_FOLDER` reads a finished run of `ropewalk compare --task recall`, takes
the head of its first `rotary` model whose distance explains most of its scores, and writes
results/heads: its weights on one test example, the parts of one score, mean scores by distance, and
what is left without the fast and without the slow pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import GENERATED, RESULTS, finished_run, shown, write_study

from ropewalk.figures import Picture, head_by_pair
from ropewalk.files import Facts
from ropewalk.lab.models import load_model
from ropewalk.lab.results import read_results
from ropewalk.lab.tasks import open_task
from ropewalk.machine import commit, versions
from ropewalk.tools import attention

FOLDER = RESULTS / "heads"
SPLIT = "x2"
DIGITS = 5


def study(run: Path) -> Facts:
    """Return the numbers of the head."""
    results = read_results(run)
    task: Any = open_task(results.config, run)
    ids = task.data[SPLIT].source[0]
    seed = results.config.seeds[0]
    path = results.row("rotary").cell(seed).folder(run) / "model.safetensors"
    model, _ = load_model(path, torch.device("cpu"))
    found = attention(model, torch.tensor(ids))
    layer, head = found.positional()[0]
    of = found.layers[layer]
    fast = sum(wave > len(ids) for wave in of.wavelengths)  # the first pair that turns in the text
    left_out = {
        "all pairs": range(0),
        "without fast pairs": range(fast, len(of.wavelengths)),
        "without slow pairs": range(fast),
    }
    at = torch.arange(1, len(ids))
    weights = {name: of.weights(head, without=band) for name, band in left_out.items()}
    half = len(ids) // 2
    query = half + int(weights["all pairs"].diagonal(-1)[half - 1 :].argmax())
    by_distance = {name: of.by_distance(head, without=band)[1] for name, band in left_out.items()}
    return {
        "asked": results.command,
        "commit": commit(),
        "versions": versions(),
        "tokens": [task.sequence.words[i] for i in ids],
        "layer": of.layer,
        "head": head,
        "share": of.heads[head].position_share,
        "fast": len(of.wavelengths) - fast,
        "previous": {name: float(x[at, at - 1].mean()) for name, x in weights.items()},
        "wavelengths": list(of.wavelengths),
        "weights": _rounded(weights["all pairs"].tolist()),
        "query": query,
        "parts": _rounded(of.contributions(head, query, query - 1).tolist()),
        "distances": of.by_distance(head)[0].tolist(),
        "scores": {name: _rounded(x.tolist()) for name, x in by_distance.items()},
    }


def _rounded(value: Any) -> Any:
    return [_rounded(x) for x in value] if isinstance(value, list) else round(value, DIGITS)


def picture_of(results: Facts) -> Picture:
    """Draw the head."""
    query = results["query"]
    names = ("weights", "wavelengths", "parts", "distances", "scores")
    return head_by_pair(*(results[name] for name in names), pair_of_tokens=(query, query - 1))


def readme(results: Facts) -> str:
    """Return the page."""
    previous, count, fast = results["previous"], len(results["wavelengths"]), results["fast"]
    whole, slow_left, fast_left = (f"{100 * share:.0f} %" for share in previous.values())
    text = (
        f"A `rotary` model of the task recall (keys and values in turn, then a key whose value is "
        f"asked for) reads one test example of {len(results['tokens'])} tokens. In the head whose "
        f"distance explains most of its scores (layer {results['layer']}, head {results['head']}, "
        f"counted from 0: {100 * results['share']:.0f} % of their variance), the previous token "
        f"has {whole} of the weight, mean of all queries but the first. Without the {fast} pairs "
        f"that make a turn within the text it has {slow_left}; without the other {count - fast} of "
        f"{count} it has {fast_left}. One model, one text. Commands:"
    )
    commands = f"```sh\n{results['asked']}\n{results['command']}\n```"
    title = "# A head of the previous token, and the pairs that make it"
    parts = [title, GENERATED, text, commands, shown("head", picture_of(results))]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study the run that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=finished_run, help="folder of a finished run of recall")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    results = study(options.run)
    write_study(options.out, results, readme, {"head": picture_of(results)})


if __name__ == "__main__":
    main()
