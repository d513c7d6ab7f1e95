"""What the parts of a rope do, in models trained here.

`python studies/rotary_parts.py RUN_FOLDER …` reads finished runs of `ropewalk compare --task
causal-lm`, measures the models of the first, and writes results/rotary-parts: norms of queries
and keys by frequency, mean scores by distance, how well positions can be read from hidden states,
norms of gradients, and a README of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from anatomy import position_left, record_rotations, score_by_distance
from common import RESULTS, finished_run, write_study
from rotary_parts_pictures import pictures_of
from rotary_parts_report import readme
from torch import Tensor, nn

from ropewalk import RotarySpec
from ropewalk.files import Facts
from ropewalk.lab.config import Config
from ropewalk.lab.models import load_model
from ropewalk.lab.results import CellResults, read_results
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tasks.text import CausalText
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel
from ropewalk.tools.usage.head_usage import pair_squares

FOLDER = RESULTS / "rotary-parts"
WINDOWS = 64  # of the test text, each of the trained length


def windows(config: Config, run: Path) -> Tensor:
    """Return token ids of the test text in windows of the trained length: (WINDOWS, S)."""
    task = open_task(config, run)
    assert isinstance(task, CausalText)
    ids = task.data["test"]
    count = min(WINDOWS, len(ids) // config.train_length)
    return ids[: count * config.train_length].view(count, config.train_length)


def spec_of(model: LanguageModel) -> RotarySpec | None:
    """Return the rope of a model, or None if its encoding has none."""
    rope = getattr(model.encoding.for_layer(0), "rope", None)
    return None if rope is None else rope.spec


@torch.no_grad()
def measure_model(model: LanguageModel, tokens: Tensor) -> Facts:
    """Measure one model on these windows; lists have one entry per layer."""
    with record_rotations(model) as seen:
        hidden = hidden_states(model, tokens)
    spec = spec_of(model)
    head_dim = model.shape.width // model.shape.heads
    groups = model.shape.heads // (model.shape.kv_heads or model.shape.heads)
    facts: Facts = {"position_left": [round(position_left(x), 4) for x in hidden], "scores": []}
    for each in seen:
        assert each.turned_k is not None
        k = each.turned_k.repeat_interleave(groups, dim=1)
        scores = score_by_distance(each.turned_q, k, head_dim**-0.5)
        facts["scores"].append(_rounded(scores.mean(0)))
    if spec is not None:
        facts["norms"] = [
            {
                name: [_rounded(head) for head in pair_squares(x, spec).mean((0, 2)).sqrt()]
                for name, x in (("q", each.q), ("k", each.k))
                if x is not None
            }
            for each in seen
        ]
        facts["wavelengths"] = _rounded(spec.wavelengths())
    return facts


@torch.no_grad()
def hidden_states(model: LanguageModel, tokens: Tensor) -> list[Tensor]:
    """Return each layer's input, and the last layer's output: depth -> `(B, S, width)`."""
    hidden: list[Tensor] = []
    hooks = [
        part.register_forward_pre_hook(_collecting(hidden)) for part in (*model.layers, model.norm)
    ]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return hidden


def _collecting(hidden: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def collect(part: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        hidden.append(inputs[0])

    return collect


def _rounded(values: Tensor) -> list[float]:
    return [round(v, 4) for v in values.tolist()]


def study_run(run: Path) -> Facts:
    """Measure every finished model of a run."""
    results = read_results(run)
    config = results.config
    tokens = windows(config, run)
    encodings: dict[str, Facts] = {}
    for row in results.encodings:
        cells = []
        for cell in row.cells:
            path = row.cell(cell.seed).folder(run) / "model.safetensors"
            if path.exists():
                model, _ = load_model(path, torch.device("cpu"))
                assert isinstance(model, LanguageModel)
                cells.append({"seed": cell.seed, **measure_model(model, tokens)})
        spread = row.validation_loss.as_json()
        encodings[row.name] = {"cells": cells, "validation_loss": spread}
    return {
        "commit": commit(),
        "versions": versions(),
        "config": config.facts(),
        "windows": len(tokens),
        "encodings": encodings,
    }


def gradients_of(run: Path) -> Facts:
    """Return the norms of a run's gradients before clipping: encoding -> seeds."""
    rows = read_results(run).encodings
    return {row.name: [_gradients(cell) for cell in row.cells] for row in rows}


def _gradients(cell: CellResults) -> Facts:
    norms = [seen.gradient for seen in cell.training if seen.gradient is not None]
    middle = sorted(norms)[len(norms) // 2] if norms else None
    return {
        "status": cell.status,
        "first": norms[0] if norms else None,
        "median": middle,
        "largest": max(norms, default=None),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Study the runs and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "runs",
        type=finished_run,
        nargs="+",
        help="finished causal-lm runs: models are read from the first, gradients from the last",
    )
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    results = study_run(options.runs[0])
    results["asked"] = [read_results(run).command for run in options.runs]
    results["gradients"] = gradients_of(options.runs[-1])
    write_study(options.out, results, readme, pictures_of(results))


if __name__ == "__main__":
    main()
