"""Whether attention grows sharper with depth: its entropy by layer, for every encoding of a run.

``python studies/sharpness.py RUN_FOLDER`` reads the models of a finished translation run, measures
the entropy of all their attention over a whole test split, and writes results/sharpness with a
README made of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from common import GENERATED, RESULTS, Facts, markdown_table, study_one_run
from entropy import attention_entropy

from ropewalk.lab.batches import read_splits
from ropewalk.lab.cells import Cell
from ropewalk.lab.models import load_translator
from ropewalk.lab.results import read_results

FOLDER = RESULTS / "sharpness"
KINDS = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


def study_run(run: Path, split: str | None) -> Facts:
    """Measure every finished model of a run."""
    results = read_results(run)
    split = split or results["splits"][0]
    encoded = read_splits(run / "splits.safetensors")[split]
    encodings: dict[str, list[Facts]] = {}
    for row in results["encodings"]:
        encodings[row["name"]] = []
        for cell in row["cells"]:
            path = Cell(row["name"], cell["seed"]).folder(run) / "model.safetensors"
            if path.exists():  # a diverged cell has none
                model, _ = load_translator(path, torch.device("cpu"))
                found = attention_entropy(model, encoded)
                layers = {kind: [asdict(one) for one in each] for kind, each in found.items()}
                encodings[row["name"]].append({"seed": cell["seed"], **layers})
    return {
        "asked": results["command"],
        "split": split,
        "sentences": len(encoded),
        "encodings": encodings,
    }


def readme(results: Facts) -> str:
    """Write the README of the results folder out of its numbers alone."""
    parts = [
        "# How sharp attention is, by layer",
        GENERATED,
        f"Entropy of attention over all {results['sentences']:,} sentences of {results['split']}, "
        "mean of heads, queries and seeds, as a share of what even attention would have: 100 % "
        "looks at everything alike, 0 % at one token alone. The decoder reads the references. "
        "Seeds' own values, and bits, are in results.json.",
    ]
    for kind, title in KINDS.items():
        rows, sharper = [], []
        for name, cells in results["encodings"].items():
            shares = torch.tensor(
                [[layer["share"] for layer in cell[kind]] for cell in cells], dtype=torch.float64
            )
            if not shares.numel():
                continue
            mean = shares.mean(0)
            rows.append([f"`{name}`", *(f"{share:.0%}" for share in mean.tolist())])
            if bool((mean.diff() < 0).all()):
                sharper.append(f"`{name}`")
        if not rows:
            continue
        depth = len(rows[0]) - 1
        lines = markdown_table(["", *(f"layer {i + 1}" for i in range(depth))], rows)
        sentence = "Sharper from every layer to the next: " + (", ".join(sharper) or "none of them")
        parts += [f"## {title}", lines, f"{sentence}."]
    parts.append(f"```sh\n{results['asked']}\n{results['command']}\n```")
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the folder."""
    study_one_run(__doc__, study_run, readme, FOLDER, arguments)


if __name__ == "__main__":
    main()
