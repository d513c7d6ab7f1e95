"""What the parts of a rope are for, in models trained here.

``python studies/rotary_parts.py RUN_FOLDER …`` reads finished runs of ``ropewalk compare --task
causal-lm``, looks into the models of the first, and writes results/rotary-parts: norms of queries
and keys by frequency, mean scores by distance, how much of a position is left in hidden states,
norms of gradients, and a README of them.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.figures import static
from ropewalk.figures.palette import LIGHT_PAGE, style
from ropewalk.lab.anatomy import pair_norms, position_left, score_by_distance, watched
from ropewalk.lab.checkpoint import read_json, write_bytes
from ropewalk.lab.config import Config
from ropewalk.lab.folders import Cell
from ropewalk.lab.models import load_model
from ropewalk.lab.publish import readable_json
from ropewalk.lab.tasks import open_task
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel
from ropewalk.rotary import RotarySpec

FOLDER = Path(__file__).resolve().parents[1] / "results" / "rotary-parts"
PLAIN = ("none", "sinusoidal", "learned")  # encodings that leave attention as it is
WINDOWS = 64  # of the test text, each as long as those trained on

Facts = dict[str, Any]


def windows(config: Config, run: Path) -> Tensor:
    """Give token ids of the test text, windows as long as those trained on: (WINDOWS, S)."""
    ids = open_task(config, run).data["test"]  # type: ignore[attr-defined]
    count = min(WINDOWS, len(ids) // config.length)
    return ids[: count * config.length].unflatten(0, (count, config.length))


def spec_of(model: LanguageModel) -> RotarySpec | None:
    """Give the rope of a model whose encoding has one, else None."""
    rope = getattr(model.encoding.site(0), "rope", None)
    return None if rope is None else rope.spec


@torch.no_grad()
def looked_into(model: LanguageModel, tokens: Tensor) -> Facts:
    """Measure one model on these windows: a list entry for each layer."""
    hidden: list[Tensor] = []
    hooks = [
        part.register_forward_pre_hook(_keeping(hidden)) for part in (*model.layers, model.norm)
    ]
    with watched(model) as seen:
        model(tokens)
    for hook in hooks:
        hook.remove()
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
                name: [_rounded(head) for head in pair_norms(x, spec)]
                for name, x in (("q", each.q), ("k", each.k))
                if x is not None
            }
            for each in seen
        ]
        facts["wavelengths"] = _rounded(spec.wavelengths())
    return facts


def _keeping(hidden: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def keep(part: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        hidden.append(inputs[0])

    return keep


def _rounded(values: Tensor) -> list[float]:
    return [round(v, 4) for v in values.tolist()]


def studied(run: Path) -> Facts:
    """Look into every finished model of a run."""
    results = read_json(run / "results.json")
    config = Config.model_validate(results["config"])
    tokens = windows(config, run)
    encodings: dict[str, Facts] = {}
    for row in results["encodings"]:
        cells = []
        for cell in row["cells"]:
            path = Cell(row["name"], cell["seed"]).folder(run) / "model.safetensors"
            if path.exists():
                model, _ = load_model(path, torch.device("cpu"))
                assert isinstance(model, LanguageModel)
                cells.append({"seed": cell["seed"], **looked_into(model, tokens)})
        encodings[row["name"]] = {"cells": cells, "validation_loss": row["validation_loss"]}
    return {
        "commit": commit(),
        "versions": versions(),
        "config": results["config"],
        "windows": len(tokens),
        "encodings": encodings,
    }


def gradients_of(run: Path) -> Facts:
    """Give how large a run's gradients were, before they were clipped: encoding -> seeds."""
    rows = read_json(run / "results.json")["encodings"]
    return {row["name"]: [_gradients(cell) for cell in row["cells"]] for row in rows}


def _gradients(cell: Facts) -> Facts:
    norms = [seen["gradient"] for seen in cell["training"]]
    middle = sorted(norms)[len(norms) // 2] if norms else None
    return {
        "status": cell["status"],
        "first": norms[0] if norms else None,
        "median": middle,
        "largest": max(norms, default=None),
    }


def slow_share(norms: list[Facts], name: str) -> list[float]:
    """Give, for each layer, the share of squared norm that the slower half of the pairs holds."""
    shares = []
    for layer in norms:
        squares = torch.tensor(layer[name]).square()
        half = squares.shape[-1] // 2
        shares.append(float(squares[:, half:].sum() / squares.sum()))
    return shares


def decay(scores: list[float]) -> float:
    """Give how far the mean score falls from the nearest eighth of distances to the farthest."""
    part = max(1, len(scores) // 8)
    near, far = scores[1 : 1 + part], scores[-part:]
    return sum(near) / len(near) - sum(far) / len(far)


def readme(results: Facts, command: str) -> str:
    """Write the README of the results folder out of its numbers alone."""
    config = results["config"]
    parts = [
        "# What the parts of a rope are for",
        "<!-- Generated from results.json; the next run writes it anew. -->",
        f"Models of {config['layers']} layers, width {config['width']}, trained to foretell the "
        f"next token in windows of {config['length']} tokens ({config['data']}), then looked into "
        f"on {results['windows']} windows of the test text. Trained and looked into by:",
        "```sh\n" + "\n".join([*results["asked"], command]) + "\n```",
        *_losses(results),
        *_norms(results),
        *_decays(results),
        *_positions(results),
        *_gradient_table(results),
    ]
    return "\n\n".join(parts) + "\n"


def _losses(results: Facts) -> list[str]:
    encodings = results["encodings"]
    rows = []
    for name, row in encodings.items():
        losses = row["validation_loss"]["values"]
        rows.append([f"`{name}`", _number(row["validation_loss"]["mean"], 3), _seeds(losses)])
    return [
        "## Loss",
        "Mean validation loss of a token; with `values=True` values turn as well and the output "
        "turns back; with `frequency` all pairs turn alike. Whether differences on the test text "
        "are shown by more than chance stands in the table of the run itself.",
        _table(["encoding", "validation loss", "seeds"], rows),
    ]


def _norms(results: Facts) -> list[str]:
    rows = []
    for name, row in results["encodings"].items():
        cells = [cell for cell in row["cells"] if "norms" in cell]
        if not cells:
            continue
        for part in ("q", "k"):
            layers = torch.tensor([slow_share(cell["norms"], part) for cell in cells])
            rows.append(
                [f"`{name}`, {part}", *(f"{share:.0%}" for share in layers.mean(0).tolist())]
            )
    layers = results["config"]["layers"]
    return [
        "## Norm by frequency",
        "Share of squared norm, before the rotation, that lies in the slower half of the pairs "
        "(mean of seeds; 50 % would be even). Barbero et al. (arXiv 2410.06205) find that a large "
        "model uses the slow pairs most, as channels for meaning that hardly turn.",
        _table(["", *(f"layer {i + 1}" for i in range(layers))], rows),
        "![Norm of queries and keys by pair, layer and head](norms.png)",
        "Norm of each pair as a share of its head's, first seed: fastest pair left; a row for each "
        "head, layers from top to bottom; colour grows with the share.",
    ]


def _decays(results: Facts) -> list[str]:
    rows = []
    for name, row in results["encodings"].items():
        falls = torch.tensor(
            [[decay(layer) for layer in cell["scores"]] for cell in row["cells"]] or [[]]
        )
        if falls.numel():
            rows.append([f"`{name}`", *(f"{fall:+.2f}" for fall in falls.mean(0).tolist())])
    layers = results["config"]["layers"]
    return [
        "## Score by distance",
        "By how much the mean score (what the softmax gets from q and k; biases are not in it) is "
        "higher at the nearest eighth of distances than at the farthest, mean of heads and seeds. "
        "RoFormer (section 3.4.3) derives an upper bound that decays with distance; a trained "
        "model need not follow it.",
        _table(["encoding", *(f"layer {i + 1}" for i in range(layers))], rows),
        "![Mean score by distance](scores.png)",
    ]


def _positions(results: Facts) -> list[str]:
    rows = []
    for name, row in results["encodings"].items():
        if row["cells"]:
            left = torch.tensor([cell["position_left"] for cell in row["cells"]]).mean(0).tolist()
            rows.append([f"`{name}`", *(f"{share:.2f}" for share in left)])
    layers = results["config"]["layers"]
    head = ["encoding", "embedding", *(f"after layer {i + 1}" for i in range(layers))]
    return [
        "## How much of a position is left",
        "R² of a linear map (ridge regression, judged on windows it has not seen) from a token's "
        "vector to its position: 1 reads it exactly, 0 knows nothing of it. What is added to the "
        "embedding has to survive; with the others, the causal mask alone lets layers count.",
        _table(head, rows),
    ]


def _gradient_table(results: Facts) -> list[str]:
    rows = []
    for name, cells in results["gradients"].items():
        found = [g for g in cells if g["first"] is not None]
        if found:
            means = [
                _number(sum(g[key] for g in found) / len(found), 2)
                for key in ("first", "median", "largest")
            ]
            ended = sum(g["status"] == "finished" for g in cells)
            rows.append([f"`{name}`", *means, f"{ended} of {len(cells)}"])
    return [
        "## Gradients",
        "Norm of the whole gradient before it is clipped, at the first step, in the median and at "
        "most, mean of seeds. `integer` adds the position itself to every column; layers that norm "
        "their input first take it off again with the mean, and what grows is the path around.",
        _table(["encoding", "first step", "median", "largest", "finished"], rows),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _seeds(values: Sequence[float | None]) -> str:
    return " · ".join(_number(value, 3) for value in values)


def norms_figure(results: Facts) -> bytes:
    """Draw each pair's share of its head's norm, first seed: a panel for q and k of each rope."""
    from matplotlib.colors import LinearSegmentedColormap

    ropes = {
        name: row["cells"][0]["norms"]
        for name, row in results["encodings"].items()
        if row["cells"] and "norms" in row["cells"][0]
    }
    figure = static.new_figure(1.0 + 1.5 * len(ropes), 4.0)
    panels = figure.subplots(2, len(ropes), squeeze=False)
    for place, (name, layers) in enumerate(ropes.items()):
        shades = LinearSegmentedColormap.from_list("norm", [LIGHT_PAGE, style(place).colour])
        for axes, part in zip(panels[:, place], ("q", "k"), strict=True):
            norms = torch.cat([torch.tensor(layer[part]) for layer in layers])
            axes.imshow((norms / norms.norm(dim=1, keepdim=True)).numpy(), cmap=shades, vmin=0)
            axes.set_title(f"{name}\n{part}" if part == "q" else part, fontsize=7)
            heads = len(layers[0][part])
            for layer in range(1, len(layers)):
                axes.axhline(layer * heads - 0.5, color=static.INK, linewidth=0.6)
            axes.set_xticks([])
            axes.set_yticks([])
    return static.png(figure)


def scores_figure(results: Facts) -> bytes:
    """Draw the mean score by distance, a panel for each layer, less its mean over distances.

    Ropes, and what has no part in attention: of the others, q and k alone are not the score.
    """
    layers = results["config"]["layers"]
    drawn = {
        name: row
        for name, row in results["encodings"].items()
        if row["cells"] and ("norms" in row["cells"][0] or name in PLAIN)
    }
    figure = static.new_figure(3.2 * layers + 1.6, 3.0)
    panels = figure.subplots(1, layers, squeeze=False)[0]
    for layer, axes in enumerate(panels):
        for place, (name, row) in enumerate(drawn.items()):
            curves = torch.tensor([cell["scores"][layer] for cell in row["cells"]])
            curve = curves.mean(0) - curves.mean()
            look = style(place)
            axes.plot(
                curve.tolist(),
                color=look.colour,
                marker=look.marker,
                markevery=8,
                markersize=4,
                linewidth=1,
                label=name,
            )
        axes.set_title(f"layer {layer + 1}", loc="left", fontsize=9)
        axes.set_xlabel("distance in tokens")
        static.calm(axes)
    panels[0].set_ylabel("mean score, less its own mean")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right", fontsize=7)
    return static.png(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        help="finished causal-lm runs: the first is "
        "looked into, the gradients of the last are told",
    )
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    results = studied(options.runs[0])
    results["asked"] = [read_json(run / "results.json")["command"] for run in options.runs]
    results["gradients"] = gradients_of(options.runs[-1])
    results["command"] = shlex.join(["python", *sys.argv])
    write_bytes(options.out / "results.json", (readable_json(results) + "\n").encode())
    write_bytes(options.out / "norms.png", norms_figure(results))
    write_bytes(options.out / "scores.png", scores_figure(results))
    write_bytes(options.out / "README.md", readme(results, results["command"]).encode())
    print(options.out / "README.md")


if __name__ == "__main__":
    main()
