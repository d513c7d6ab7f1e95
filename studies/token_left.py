"""How much of a token is left in its hidden vectors, with and without added positions.

`python studies/token_left.py runs/claims/sizes-large` reads a finished run of `ropewalk compare
--task causal-lm`, measures at each depth of each model how often a token's own embedding is the
nearest to its vector, and writes results/claims/token-left with a README made of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from common import GENERATED, RESULTS, markdown_table, study_models
from rotary_parts import hidden_states, windows
from torch import Tensor
from torch.nn.functional import normalize

from ropewalk.files import Facts
from ropewalk.lab.models import load_model
from ropewalk.lab.results import read_results
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel

FOLDER = RESULTS / "claims" / "token-left"


def token_left(hidden: Tensor, table: Tensor, tokens: Tensor) -> float:
    """Return the share of vectors for which their own token's embedding is nearest, by angle.

    hidden `(B, S, width)`, table `(V, width)`, tokens `(B, S)`.
    """
    nearest = (normalize(hidden, dim=-1) @ normalize(table, dim=-1).mT).argmax(-1)
    return float((nearest == tokens).double().mean())


def study_run(run: Path) -> Facts:
    """Measure every finished model of a run on windows of the test text."""
    results = read_results(run)
    config = results.config
    tokens = windows(config, run)
    encodings: dict[str, list[Facts]] = {}
    for row in results.encodings:
        encodings[row.name] = []
        for cell in row.cells:
            path = row.cell(cell.seed).folder(run) / "model.safetensors"
            if path.exists():
                model, _ = load_model(path, torch.device("cpu"))
                assert isinstance(model, LanguageModel)
                left = [
                    round(token_left(x, model.embedding.weight, tokens), 4)
                    for x in hidden_states(model, tokens)
                ]
                encodings[row.name].append({"seed": cell.seed, "token_left": left})
    return {
        "asked": results.command,
        "commit": commit(),
        "versions": versions(),
        "windows": len(tokens),
        "encodings": encodings,
    }


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    rows = [
        [f"`{name}`, seed {cell['seed']}", *(f"{share:.1%}" for share in cell["token_left"])]
        for name, cells in results["encodings"].items()
        for cell in cells
    ]
    layers = len(rows[0]) - 2
    head = ["", "embedding", *(f"after layer {i + 1}" for i in range(layers))]
    parts = [
        "# How much of a token is left in its vector",
        GENERATED,
        f"Share of tokens, in {results['windows']} windows of the test text, whose own embedding "
        "is the nearest of all to their vector, by angle. The column “embedding” is what the first "
        "layer reads, with added positions. The models are trained to predict the next token; how "
        "near vectors come to it was not measured.",
        markdown_table(head, rows),
        f"```sh\n{results['asked']}\n{results['command']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the results folder."""
    study_models(__doc__, study_run, readme, FOLDER, arguments)


if __name__ == "__main__":
    main()
