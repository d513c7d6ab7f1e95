"""Tables and figures of the numbers of `rotary_parts.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from common import GENERATED, markdown_table, shown
from rotary_parts_pictures import norms_picture, scores_picture

from ropewalk import RotaryEmbedding
from ropewalk.encodings import StackShape, build
from ropewalk.files import Facts
from ropewalk.lab.config import Config

SMALL = 0.1  # rad; below, sine and cosine are nearly 0 and 1


def slow_share(norms: list[Facts], name: str) -> list[float]:
    """Return, for each layer, the share of squared norm in the slower half of the pairs."""
    shares = []
    for layer in norms:
        squares = torch.tensor(layer[name]).square()
        half = squares.shape[-1] // 2
        shares.append(float(squares[:, half:].sum() / squares.sum()))
    return shares


def by_eighths(scores: list[float]) -> list[float]:
    """Return the mean score in each eighth of the distances from 1 on, nearest first."""
    rest = torch.tensor(scores[1:])
    return [float(part.mean()) for part in rest.tensor_split(8)]


def decay(scores: list[float]) -> float:
    """Return the mean score of the nearest eighth of distances less that of the farthest."""
    eighths = by_eighths(scores)
    return eighths[0] - eighths[-1]


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    config = results["config"]
    parts = [
        "# What the parts of a rope are for",
        GENERATED,
        f"Models of {config['layers']} layers, width {config['width']}, trained to predict the "
        f"next token in windows of {config['train_length']} tokens ({config['data']}), then "
        f"examined on {results['windows']} windows of the test text. Commands:",
        "```sh\n" + "\n".join([*results["asked"], results["command"]]) + "\n```",
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
        "Mean validation loss per token. With `values=True` values rotate too, and the output "
        "rotates back; with `frequency` all pairs rotate at the same speed. The README of the run "
        "tests differences from `sinusoidal` on the test text.",
        markdown_table(["encoding", "validation loss", "seeds"], rows),
        *_alike_by_design(results),
    ]


def _alike_by_design(results: Facts) -> list[str]:
    """Say for each p-RoPE how far the pairs it does not rotate would rotate within a window."""
    said = []
    for name in results["encodings"]:
        if "rule=proportional" not in name:
            continue
        angle = left_out_angle(name, Config.model_validate(results["config"]))
        said.append(
            f"`{name}` does not rotate pairs that would rotate by at most {angle:.3f} rad within a "
            f"window of {results['config']['train_length']} tokens: at this length it is nearly "
            f"`rotary` by design, so its row says nothing about p-RoPE."
            if angle < SMALL
            else f"`{name}` does not rotate pairs that would rotate by up to {angle:.3f} rad in a "
            f"window of {results['config']['train_length']} tokens."
        )
    return said


def _frequencies(name: str, shape: StackShape) -> torch.Tensor:
    rope = build(name, shape).for_layer(0).rope
    assert isinstance(rope, RotaryEmbedding)
    return rope.spec.inverse_frequencies()


def left_out_angle(name: str, config: Config) -> float:
    """Return the largest angle (rad) in a window of the pairs that p-RoPE does not rotate."""
    shape = config.shape(vocabulary=1).stack_shape(causal=True)
    turned, plain = (_frequencies(each, shape) for each in (name, "rotary"))
    left_out = plain[turned == 0]
    return float(left_out.max()) * (config.train_length - 1) if len(left_out) else 0.0


def _norms(results: Facts) -> list[str]:
    rows = []
    for name, row in results["encodings"].items():
        cells = [cell for cell in row["cells"] if "norms" in cell]
        if not cells:
            continue
        if "frequency=" in name:  # all pairs rotate equally fast
            continue
        for part in ("q", "k"):
            layers = torch.tensor([slow_share(cell["norms"], part) for cell in cells])
            rows.append(
                [f"`{name}`, {part}", *(f"{share:.0%}" for share in layers.mean(0).tolist())]
            )
    layers = results["config"]["layers"]
    return [
        "## Norm by frequency",
        "Share of the squared norm, before rotation, in the slower half of the pairs (mean of "
        "seeds; 50 % would be even). Barbero et al. (arXiv 2410.06205) find that a large model "
        "uses the slow pairs most, as channels for meaning that hardly rotate.",
        markdown_table(["", *(f"layer {i + 1}" for i in range(layers))], rows),
        shown("norms", norms_picture(results)),
        "Norm of each pair as a share of its head's norm, first seed: fastest pair on the left; a "
        "row for each head, layers from top to bottom; color grows with the share.",
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
        "How much higher the mean score is at the nearest eighth of distances (from 1 on) than at "
        "the farthest (mean of heads and seeds). The score is q·k/√D; before the "
        "softmax, `tupe` divides it by another √2, and `deberta` by √3. The encodings from "
        "`alibi` to `cope` add terms to scores, so q·k is only a part of theirs. Numbers near 0 "
        "may have another sign in another seed. RoFormer (section "
        "3.4.3) derives an upper bound that decays with distance; a trained model need not follow "
        "it.",
        markdown_table(["encoding", *(f"layer {i + 1}" for i in range(layers))], rows),
        shown("scores", scores_picture(results)),
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
        "R² of a linear map (ridge regression, evaluated on unseen windows) from a token's vector "
        "to its position: 1 means that it reads the position exactly, 0 that it does no better "
        "than the mean position; below 0, it does worse. The "
        "causal mask alone lets layers count, as `none` shows. So after any "
        "layer, the map may read a position that was counted and not the one that was added.",
        markdown_table(head, rows),
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
        "Norm of the full gradient before clipping: at the first step, the median and the largest "
        "(means of seeds). `integer` adds the position itself to every column. Layers that "
        "normalize their input remove it again with the mean; only the residual path grows.",
        markdown_table(["encoding", "first step", "median", "largest", "finished"], rows),
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _seeds(values: Sequence[float | None]) -> str:
    return " · ".join(_number(value, 3) for value in values)
