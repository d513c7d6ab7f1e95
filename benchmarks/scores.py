"""Scores: by how much each library's rotation moves q·k, by length, dtype and stack.

q and k are random, so that scores have a standard deviation of 1. Queries stand in the last 64
positions of a context, keys at distances from 1 to the context, evenly in their logarithm. The
reference rotates the same q and k in float64 by angles from 50 digits (mpmath). In bfloat16, q and
k are bfloat16 before they are rotated, and the products are summed in float64: an error is that of
the rotation, its rounding included. Needs transformers, rotary-embedding-torch and x-transformers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import FOLDER, conditions, table
from exact_angles import exact, exact_frequencies
from exactness import paired
from far_ropes import (
    HEAD_DIM,
    Rope,
    float64_product,
    installed,
    llama,
    ropewalk,
    rotary_embedding_torch,
    rotated,
    x_transformers,
)
from torch import Tensor

from ropewalk.files import write_json
from ropewalk.machine import cores

THETA = 500_000.0
LENGTHS = (4_096, 32_768, 131_072, 1_000_000, 10_000_000)
WINDOW = 64  # positions of queries
HALF = torch.bfloat16
STACKS: list[tuple[str, torch.dtype, Callable[[float], Rope]]] = [  # name, dtype of q and k, rope
    ("ropewalk", torch.float32, ropewalk),
    ("torch, angles in float64", torch.float32, float64_product),
    ("transformers", torch.float32, llama),
    ("rotary-embedding-torch", torch.float32, rotary_embedding_torch),
    ("x-transformers", torch.float32, x_transformers),
    ("ropewalk", HALF, ropewalk),
    ("transformers, loaded in bfloat16", HALF, partial(llama, tables=HALF)),
    ("transformers after .bfloat16()", HALF, partial(llama, buffer=HALF, tables=HALF)),
    ("rotary-embedding-torch", HALF, rotary_embedding_torch),
    ("x-transformers after .bfloat16()", HALF, partial(x_transformers, dtype=HALF)),
]


def vectors(heads: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Return random vectors (1, heads, WINDOW, D) whose products have a standard deviation of 1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, heads, WINDOW, HEAD_DIM, generator=generator, dtype=torch.float64)
    return (x / HEAD_DIM**0.25).to(dtype)


def places(length: int) -> tuple[Tensor, Tensor]:
    """Return the positions (WINDOW,) of queries and of their keys, which are never after them."""
    queries = torch.arange(length - WINDOW, length)
    shares = (torch.arange(WINDOW, dtype=torch.float64) + 0.5) / WINDOW
    distances = ((length - WINDOW) ** shares).long()
    order = torch.randperm(WINDOW, generator=torch.Generator().manual_seed(5))
    return queries, queries - distances[order]


@torch.no_grad()
def errors(rope: Rope, length: int, heads: int, dtype: torch.dtype) -> dict[str, float]:
    """Return the root-mean-square and the worst error of scores."""
    sides = []
    for seed, positions in enumerate(places(length)):
        x = paired(vectors(heads, seed, dtype), rope.pairing)
        cos, sin = exact(exact_frequencies(THETA), positions)
        sides.append(
            (rope.rotate(x, positions).double(), rotated(x.double(), cos, sin, rope.pairing))
        )
    (q, exact_q), (k, exact_k) = sides
    wrong = (q * k).sum(-1) - (exact_q * exact_k).sum(-1)
    return {"rms": wrong.square().mean().sqrt().item(), "worst": wrong.abs().max().item()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", type=int, default=64, help="random vectors at each position")
    parser.add_argument("--out", type=Path, help="default: results/scores.json in this folder")
    parser.add_argument("--smoke", action="store_true", help="few vectors, nothing written")
    options = parser.parse_args(arguments)
    results, began = conditions(cores()), time.monotonic()
    heads = 2 if options.smoke else options.heads
    results |= {"head_dim": HEAD_DIM, "theta": THETA, "window": WINDOW, "heads": heads}
    for library in ("transformers", "rotary-embedding-torch", "x-transformers"):
        results["versions"][library] = installed(library)
    rows: list[dict[str, Any]] = []
    for name, dtype, make in STACKS:
        library = name.split()[0].rstrip(",")
        if results["versions"].get(library, "here") is None:
            continue
        rope = make(THETA)
        row = {"name": name, "dtype": str(dtype).removeprefix("torch.")}
        rows.append(row | {str(length): errors(rope, length, heads, dtype) for length in LENGTHS})
    results["rows"] = rows
    results["duration_s"] = round(time.monotonic() - began, 1)
    head = ["stack, dtype", *(f"{length:,}" for length in LENGTHS)]
    print(table(head, [
        [f"{row['name']}, {row['dtype']}", *(f"{row[str(n)]['rms']:.1e}" for n in LENGTHS)]
        for row in rows
    ]))  # fmt: skip
    out = options.out or (None if options.smoke else FOLDER / "results" / "scores.json")
    if out is not None:
        write_json(out, results)
        print(f"\n{out}")


if __name__ == "__main__":
    main()
