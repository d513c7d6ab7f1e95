"""torch's flex_attention against ropewalk's blocks of queries, where position biases the scores.

In inference, on CPU, where flex_attention has no backward: what a gradient would take is tried and
reported. See README.md beside this.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import FOLDER, conditions, table
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ropewalk.encodings import AttentionEncoding, Placement, StackShape, build
from ropewalk.lab.checkpoint import write_json
from ropewalk.machine import cores
from ropewalk.model.softmax_attention import attend

HEADS, HEAD_DIM = 4, 64
LENGTHS = (1024, 4096)
ENCODINGS = ("alibi", "t5")
ROUNDS = 7

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def blocks(site: AttentionEncoding, length: int, causal: bool) -> Attention:
    """Attend as ropewalk's models do."""
    positions = torch.arange(length)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(site, q, k, v, Placement(positions), None, causal, False)[0]

    return attention


def flexible(site: AttentionEncoding, length: int, causal: bool) -> Attention:
    """Attend by flex_attention, compiled: it looks the bias of each distance up in a table."""
    ends = torch.tensor([length - 1]), torch.arange(2 * length - 1)
    with torch.no_grad():
        of_distance = site.bias(Placement(*ends))  # (H, 1, 2 * length - 1), of j - i + length - 1
    assert of_distance is not None
    values = of_distance[:, 0].float().contiguous()

    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + values[h, j - i + length - 1]

    def back(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    mask = create_block_mask(back, None, None, length, length, device="cpu") if causal else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=biased, block_mask=mask)


def compare(encoding: str, length: int, causal: bool, rounds: int) -> dict[str, Any]:
    """Time both in turn, and say how far apart their results are."""
    torch.compiler.reset()
    shape = StackShape(1, HEADS, HEADS, HEAD_DIM, HEADS * HEAD_DIM, causal)
    torch.manual_seed(0)
    site = build(encoding, shape).site(0)
    q, k, v = torch.randn(3, 1, HEADS, length, HEAD_DIM)
    ways = {"blocks": blocks(site, length, causal), "flex": flexible(site, length, causal)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    outputs = {}
    for _ in range(rounds + 1):  # the first round compiles
        for name, way in ways.items():
            began = time.perf_counter()
            with torch.no_grad():
                outputs[name] = way(q, k, v)
            times[name].append(time.perf_counter() - began)
    seconds = {name: median(each[1:]) for name, each in times.items()}
    return {
        "encoding": encoding,
        "length": length,
        "looks": "back" if causal else "both ways",
        "blocks_s": seconds["blocks"],
        "flex_s": seconds["flex"],
        "ratio": round(seconds["blocks"] / seconds["flex"], 2),
        "first_call_of_flex_s": round(times["flex"][0], 1),
        "largest_difference": float((outputs["blocks"] - outputs["flex"]).abs().max()),
    }


def gradient_of_flex() -> str:
    """Say what becomes of a gradient through flex_attention on CPU."""
    torch.compiler.reset()
    q = torch.randn(1, 1, 128, 16, requires_grad=True)
    try:
        torch.compile(flex_attention)(q, q, q).sum().backward()
    except Exception as error:  # whatever a compiler raises
        return " ".join(str(error).split())[:200]
    return "there is one"


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
    head = ["", "length", "blocks, ms", "flex, ms", "×", "first call of flex, s"]
    cells = [
        [
            f"{row['encoding']}, {row['looks']}",
            f"{row['length']:,}",
            f"{row['blocks_s'] * 1e3:,.1f}",
            f"{row['flex_s'] * 1e3:,.1f}",
            f"{row['ratio']:.2f}",
            f"{row['first_call_of_flex_s']:.1f}",
        ]
        for row in rows
    ]
    print(table(head, cells))
    print(f"\ngradient of flex_attention: {results['gradient']}")
    write_json(options.out, results)


if __name__ == "__main__":
    main()
