"""Shared code of the benchmarks: the corpus, the speed limit of matrix products, a run's facts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ropewalk import machine
from ropewalk.figures import Picture
from ropewalk.files import write_bytes
from ropewalk.machine import pick_precision
from ropewalk.model import TransformerShape

FOLDER = Path(__file__).resolve().parent
MULTI30K = FOLDER.parent / "multi30k"


def write_pictures(results: Path, picture: Picture) -> None:
    """Write a picture of the numbers next to their file, light and dark."""
    for name, content in picture.both(results.stem, "png").items():
        write_bytes(results.with_name(name), content)


def default_data() -> str:
    """Return the real corpus if the repository has a folder or a link to it, else the built-in."""
    return str(MULTI30K) if MULTI30K.is_dir() else "phrases"


def precisions() -> list[str]:
    """Return the precisions that this processor multiplies in."""
    best = pick_precision("auto", torch.device("cpu"))
    return ["float32", "bfloat16"] if best == "bfloat16" else ["float32"]


def matmul_rate(width: int, hidden: int, precision: str, seconds: float) -> float:
    """Return the operations per second of a linear map's three products, with nothing between them.

    The shapes are those of a feed-forward's first map, forward and backward, for 2048 tokens.
    """
    x, weight, gradient = (
        torch.randn(shape, dtype=getattr(torch, precision))
        for shape in ((2048, width), (hidden, width), (2048, hidden))
    )
    operations = 6 * 2048 * width * hidden
    products = lambda: (x @ weight.t(), gradient @ weight, gradient.t() @ x)  # noqa: E731
    return operations / seconds_of_call(products, seconds)


def seconds_of_call(run: Callable[[], object], seconds: float) -> float:
    """Return the mean seconds of a call that is repeated for so long, after one to warm up."""
    run()
    began, times = time.perf_counter(), 0
    while times == 0 or time.perf_counter() - began < seconds:
        run()
        times += 1
    return (time.perf_counter() - began) / times


def product_operations(
    shape: TransformerShape, sentences: int, source: int, target: int, scored: int
) -> float:
    """Count the floating-point operations of a batch's matrix products, forward and backward.

    source, target: padded tokens of a sentence; scored: positions that reach the output layer.
    """
    d, hidden = shape.width, shape.feed_forward
    s, t = sentences * source, sentences * target
    encoder = s * (4 * d * d + 2 * d * hidden) + 2 * s * source * d
    decoder = t * (6 * d * d + 2 * d * hidden) + 2 * s * d * d + 2 * t * (target + source) * d
    layers = shape.encoder_layers * encoder + shape.decoder_layers * decoder
    # A product is a multiplication and an addition; backward has two products per forward one.
    return 2.0 * 3.0 * (layers + scored * d * shape.vocabulary)


def conditions(threads: int) -> dict[str, Any]:
    """Return what is measured, where and when; call it before the run, for the start and load."""
    return machine.conditions(["python", *sys.argv], threads)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return cells as a Markdown table: the first column as text, the others as numbers."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return " | ".join(["| " + first[0].ljust(first[1]), *(c.rjust(w) for c, w in rest)]) + " |"

    return "\n".join([line(head), line(rule), *map(line, rows)])
