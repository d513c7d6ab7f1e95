"""How far apart trained vectors of positions are, by distance.

`python studies/learned_distances.py runs/claims/learned` reads a finished run of `ropewalk compare`
with the encoding `learned` and a table of at least 501 positions that were all trained, and writes
results/claims/learned-distances with a README made of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from common import GENERATED, RESULTS, markdown_table, study_models
from torch import Tensor

from ropewalk.encodings.absolute import Learned, sinusoids
from ropewalk.files import Facts
from ropewalk.lab.models import load_model
from ropewalk.lab.results import read_results
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel

FOLDER = RESULTS / "claims" / "learned-distances"
NAMED = ((1, 2), (2, 500))  # the positions that the claim names
APART = (1, 2, 8, 32, 128, 400)


def distances(table: Tensor) -> Facts:
    """Return how far rows `(positions, width)` are apart: those that are named, and means."""
    rows = table.double()
    named = [float((rows[a] - rows[b]).norm()) for a, b in NAMED]
    means = {n: float((rows[n:] - rows[:-n]).norm(dim=-1).mean()) for n in APART}
    return {
        "named": [round(each, 4) for each in named],
        "means": {str(n): round(mean, 4) for n, mean in means.items()},
    }


def study_run(run: Path) -> Facts:
    """Measure the table of every finished model of a run that has one, and sinusoids."""
    results, models = read_results(run), []
    config = results.config
    if config.train_length <= NAMED[1][1]:
        raise SystemExit(
            f"learned_distances: the run must have trained more than {NAMED[1][1]} positions, "
            f"got {config.train_length}"
        )
    for row in results.encodings:
        for cell in row.cells:
            path = row.cell(cell.seed).folder(run) / "model.safetensors"
            model, _ = load_model(path, torch.device("cpu"))
            assert isinstance(model, LanguageModel)
            assert isinstance(model.encoding, Learned)
            rows = model.encoding.table.weight.detach()[: config.train_length]
            models.append({"seed": cell.seed, **distances(rows)})
    return {
        "asked": results.command,
        "commit": commit(),
        "versions": versions(),
        "train_length": config.train_length,
        "learned": models,
        "sinusoidal": distances(sinusoids(torch.arange(config.train_length), config.width)),
    }


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    tables = {f"`learned`, seed {each['seed']}": each for each in results["learned"]}
    tables["`sinusoidal`"] = results["sinusoidal"]
    rows = [
        [name, *(f"{x:.2f}" for x in (*found["named"], *found["means"].values()))]
        for name, found in tables.items()
    ]
    head = ["", *(f"{a} and {b}" for a, b in NAMED), *(f"{n} apart" for n in APART)]
    parts = [
        "# How far apart vectors of positions are",
        GENERATED,
        "Euclidean distance of the vectors that models add for positions, all trained in windows "
        f"of {results['train_length']} tokens: of the positions that a claim names, then means "
        "over all positions that are so far apart. Rows of `learned` begin as random vectors.",
        markdown_table(head, rows),
        f"```sh\n{results['asked']}\n{results['command']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the results folder."""
    study_models(__doc__, study_run, readme, FOLDER, arguments)


if __name__ == "__main__":
    main()
