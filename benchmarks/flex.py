"""Position biases in torch's flex_attention, where compiled models compute them, and in blocks.

Measured in inference, on CPU. flex_attention has no backward there: the script tries a gradient
and reports the result. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from common import FOLDER, conditions, table
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from ropewalk.bench.clock import Step, time_steps
from ropewalk.encodings import Placement, StackShape, build
from ropewalk.encodings.biases import PairBias
from ropewalk.files import write_json
from ropewalk.machine import cores
from ropewalk.model import flex
from ropewalk.model.softmax_attention import attend

HEADS, HEAD_DIM = 4, 64
LENGTHS = (1024, 4096)
ENCODINGS = ("alibi", "t5")
ROUNDS = 7

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def blocks(site: PairBias, length: int, causal: bool) -> Attention:
    """Attend as ropewalk's models do, uncompiled."""
    positions = torch.arange(length)

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(site, q, k, v, Placement(positions), None, causal, False)[0]

    return attended


def without_flex(way: Attention) -> Attention:
    """Attend as if flex_attention could not be used."""

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with patch.object(flex, "TRIED", False):
            return way(q, k, v)

    return attended


def in_one_kernel(site: PairBias, length: int, causal: bool) -> Attention:
    """Attend by flex_attention, as models do if it can be used; both ways, they do not use it."""
    positions = torch.arange(length)

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = site.rows(q.device)
        assert rows is not None
        return flex.attend(site, rows, q, k, v, Placement(positions), None, causal)

    return attended


def first_call(way: Attention, qkv: Tensor) -> float:
    """Return the seconds of a call that compiles, without kernels from earlier calls."""
    with (
        tempfile.TemporaryDirectory() as cache,
        patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache),
    ):
        began = time.perf_counter()
        way(*qkv)
        return time.perf_counter() - began


@torch.no_grad()
def compare(encoding: str, length: int, causal: bool, rounds: int) -> dict[str, Any]:
    """Time all in turn, and return how much their results differ."""
    torch.compiler.reset()
    shape = StackShape(1, HEADS, HEADS, HEAD_DIM, HEADS * HEAD_DIM, causal)
    torch.manual_seed(0)
    site = build(encoding, shape).for_layer(0)
    qkv = torch.randn(3, 1, HEADS, length, HEAD_DIM)
    assert isinstance(site, PairBias)
    way = blocks(site, length, causal)
    ways = {
        "blocks": way,
        "compiled blocks": without_flex(torch.compile(way, fullgraph=True, dynamic=False)),
        "flex": torch.compile(in_one_kernel(site, length, causal), fullgraph=True, dynamic=False),
    }
    first = {name: round(first_call(way, qkv), 1) for name, way in ways.items() if name != "blocks"}
    outputs: dict[str, Tensor] = {}

    def step(name: str) -> Step:
        return Step(lambda _: outputs.update({name: ways[name](*qkv)}))

    times = time_steps({name: step(name) for name in ways}, qkv.device, rounds, 0.0)
    seconds = {name: median(samples) for name, samples in times.items()}
    return {
        "encoding": encoding,
        "length": length,
        "looks": "back" if causal else "both ways",
        "seconds": seconds,
        "first_call_s": first,
        "largest_difference": float((outputs["blocks"] - outputs["flex"]).abs().max()),
    }


def gradient_of_flex() -> str:
    """Return what happens to a gradient through flex_attention on CPU."""
    torch.compiler.reset()
    q = torch.randn(1, 1, 128, 16, requires_grad=True)
    try:
        torch.compile(flex_attention)(q, q, q).sum().backward()
    except Exception as error:  # a compiler may raise anything
        return " ".join(str(error).split())[:200]
    return "there is one"


def shown(results: dict[str, Any]) -> str:
    """Return the table of what was measured."""
    head = ["", "length", "blocks, ms", "compiled, ms", "flex, ms", "×", "to compile, s", "flex, s"]
    cells = [
        [
            f"{row['encoding']}, {row['looks']}",
            f"{row['length']:,}",
            *(f"{seconds * 1e3:,.1f}" for seconds in row["seconds"].values()),
            f"{row['seconds']['compiled blocks'] / row['seconds']['flex']:.2f}",
            *(f"{seconds:.1f}" for seconds in row["first_call_s"].values()),
        ]
        for row in results["rows"]
    ]
    return table(head, cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "flex.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    rows = [
        compare(encoding, int(length), causal, options.rounds)
        for encoding in ENCODINGS
        for causal in (True, False)
        for length in options.lengths.split(",")
    ]
    results |= {"heads": HEADS, "head_dim": HEAD_DIM, "rows": rows, "gradient": gradient_of_flex()}
    print(shown(results))
    print(f"\ngradient of flex_attention: {results['gradient']}")
    write_json(options.out, results)


if __name__ == "__main__":
    main()
