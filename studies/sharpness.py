"""Whether attention grows sharper with depth: its entropy by layer, for every encoding of a run.

`python studies/sharpness.py RUN_FOLDER` reads the models of a finished translation run, measures
the entropy of all their attention over a complete test split, and writes results/sharpness with a
README made of the numbers. `--add` keeps existing results of other runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import torch
from common import GENERATED, RESULTS, markdown_table, study_one_run
from entropy import attention_entropy

from ropewalk.files import Facts
from ropewalk.lab.data.batches import read_splits
from ropewalk.lab.models import load_translator
from ropewalk.lab.report.formats import format_p_value
from ropewalk.lab.results import read_results
from ropewalk.lab.scoring.significance import holm
from ropewalk.machine import commit

FOLDER = RESULTS / "sharpness"
KINDS = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


def study_run(run: Path, split: str | None) -> Facts:
    """Measure every finished model of a run."""
    results = read_results(run)
    split = split or results.splits[0]
    encoded = read_splits(run / "splits.safetensors")[split]
    encodings: dict[str, list[Facts]] = {}
    for row in results.encodings:
        encodings[row.name] = []
        for cell in row.cells:
            path = row.cell(cell.seed).folder(run) / "model.safetensors"
            if path.exists():  # a diverged cell has none
                model, _ = load_translator(path, torch.device("cpu"))
                found = attention_entropy(model, encoded)
                layers = {kind: [asdict(one) for one in each] for kind, each in found.items()}
                encodings[row.name].append({"seed": cell.seed, **layers})
    return {
        "asked": results.command,
        "commit": commit(),
        "split": split,
        "sentences": len(encoded),
        "encodings": encodings,
    }


def added(held: Facts, found: Facts) -> Facts:
    """Return `held` with the encodings of `found`, which replace encodings of the same name.

    Raises ValueError if they were measured on other sentences.
    """
    for name in ("split", "sentences"):
        if held[name] != found[name]:
            raise ValueError(
                f"{name} must be {held[name]} as in the existing results, got {found[name]}"
            )
    commands = (*held["asked"].splitlines(), *found["asked"].splitlines())
    return {
        **found,
        "asked": "\n".join(dict.fromkeys(commands)),
        "encodings": held["encodings"] | found["encodings"],
    }


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    parts = [
        "# How sharp attention is, by layer",
        GENERATED,
        f"Entropy of attention on all {results['sentences']:,} sentences of {results['split']}, "
        "mean of heads and queries, as a share of the entropy of uniform attention: 100 % is equal "
        "attention to all tokens that the query may see, 0 % is attention to one token. Queries "
        "that see one token alone are left out. Large numbers are means of seeds, small numbers "
        "are single seeds. The decoder reads the references. “Sharper” counts the "
        "seeds whose share, before rounding, falls from each layer to the next. p is the "
        "probability of at least so many such seeds if the order of the layers is random (for one "
        "seed, 1 in the factorial of the number of layers), corrected for the encodings of a table "
        "(Holm). "
        "The entropy in bits is in results.json.",
    ]
    for kind, title in KINDS.items():
        shares = {
            name: [[layer["share"] for layer in cell[kind]] for cell in cells]
            for name, cells in results["encodings"].items()
            if cells
        }
        if not any(cell for cells in shares.values() for cell in cells):
            continue
        depth = len(next(iter(shares.values()))[0])
        counts = {name: sum(map(grows_sharper, cells)) for name, cells in shares.items()}
        p = holm([chance(counts[name], len(cells), depth) for name, cells in shares.items()])
        rows = [
            [
                f"`{name}`",
                *map(_cell, zip(*cells, strict=True)),
                f"{counts[name]} of {len(cells)} seeds",
                format_p_value(corrected),
            ]
            for (name, cells), corrected in zip(shares.items(), p, strict=True)
        ]
        head = ["", *(f"layer {i + 1}" for i in range(depth)), "sharper", "p (Holm)"]
        parts += [f"## {title}", markdown_table(head, rows)]
    parts.append(f"```sh\n{results['asked']}\n{results['command']}\n```")
    return "\n\n".join(parts) + "\n"


def grows_sharper(shares: Sequence[float]) -> bool:
    """Return whether each layer's share is less than that of the layer before."""
    return all(later < before for before, later in pairwise(shares))


def chance(sharper: int, seeds: int, layers: int) -> float:
    """Return the probability of at least `sharper` such seeds if the order of layers is random."""
    one = 1 / math.factorial(layers)
    return sum(
        math.comb(seeds, k) * one**k * (1 - one) ** (seeds - k) for k in range(sharper, seeds + 1)
    )


def _cell(seeds: Sequence[float]) -> str:
    each = " · ".join(f"{share:.0%}" for share in seeds)
    return f"{sum(seeds) / len(seeds):.0%}<br><sub>{each}</sub>"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the results folder."""
    study_one_run(__doc__, study_run, readme, FOLDER, arguments, added=added)


if __name__ == "__main__":
    main()
