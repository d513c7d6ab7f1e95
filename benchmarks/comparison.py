"""What other rotary libraries do at far positions, in bfloat16 and with packed rows, as measured.

It drives the libraries that are installed. One that needs an environment of its own (torchtune) is
measured there, with --add, which puts its rows next to those of an earlier run.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import FOLDER, conditions
from exact_angles import exact, exact_frequencies
from far_ropes import (
    HEAD_DIM,
    ROPES,
    Rope,
    installed,
    llama,
    ropewalk,
    rotary_embedding_torch,
    rotated,
    torchtune,
    x_transformers,
)
from torch import Tensor

from ropewalk import scaling
from ropewalk.bench.contenders import MODULES
from ropewalk.files import read_json, write_json

THETA = 10_000.0
ENDS = (131_072, 10_000_000, 2**31)
LIBRARIES = {  # the name of a rope in far_ropes.py, and the package that must be installed
    "ropewalk": None,
    "float64 product": None,
    "transformers, Llama": "transformers",
    "rotary-embedding-torch": "rotary-embedding-torch",
    "x-transformers": "x-transformers",
    "torchtune": "torchtune",
}
CU_SEQLENS = (0, 5, 12, 16)  # documents of one packed row
HALF_POSITION = 4_000  # of a query in bfloat16

CAST: dict[str, Callable[[float, torch.dtype], Rope]] = {  # in a model that was cast to a dtype
    "ropewalk": ropewalk,
    "transformers, Llama": lambda theta, dtype: llama(theta, dtype, torch.bfloat16),
    "rotary-embedding-torch": rotary_embedding_torch,
    "x-transformers": x_transformers,
    "torchtune": torchtune,
}


def far_errors(rope: Rope, window: int) -> dict[str, float]:
    """Worst error of cos and sin in the positions below each end that the rope reaches."""
    found = {}
    for end in ENDS:
        if end > rope.max_positions:
            continue
        positions = torch.arange(end - window, end)
        reference = exact(exact_frequencies(THETA), positions)
        tables = zip(rope.tables(positions), reference, strict=True)
        found[str(end)] = max((a.double() - b).abs().max().item() for a, b in tables)
    return found


def bfloat16_error(rotate: Callable[[Tensor, Tensor], Tensor], pairing: str) -> float:
    """Worst error of rotated bfloat16 vectors, as a part of their length."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 4, 64, HEAD_DIM, generator=generator).bfloat16()
    positions = HALF_POSITION + torch.arange(64)
    expected = rotated(x.double(), *exact(exact_frequencies(THETA), positions), pairing)
    wrong = (rotate(x, positions).double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return wrong.max().item()


def packed_error(rope: Rope) -> float:
    """Worst difference of packed documents, rotated in one call, from each rotated alone."""
    x = torch.randn(1, 4, CU_SEQLENS[-1], HEAD_DIM, generator=torch.Generator().manual_seed(1))
    parts = [torch.arange(b - a) for a, b in pairwise(CU_SEQLENS)]
    sizes = [len(part) for part in parts]
    row = rope.rotate(x, torch.cat(parts))
    alone = [rope.rotate(y, at) for y, at in zip(x.split(sizes, dim=-2), parts, strict=True)]
    return (row - torch.cat(alone, dim=-2)).abs().max().item()


def scaling_rules(name: str) -> list[str] | None:
    """Name the scaling rules of a library, as its own code lists or takes them."""
    if name == "ropewalk":
        return [rule.__name__ for rule in scaling.RULES]
    if name == "transformers, Llama":
        return sorted(
            importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
        )
    if name == "torchtune":
        llama3 = importlib.import_module("torchtune.models.llama3_1")
        return [part for part in dir(llama3) if part.endswith("ScaledRoPE")]
    if name in ("rotary-embedding-torch", "x-transformers"):
        taken = inspect.signature(importlib.import_module(MODULES[name]).RotaryEmbedding.__init__)
        return [part for part in taken.parameters if "interpol" in part or "rescale" in part]
    return None


@torch.no_grad()
def measured(name: str, window: int) -> dict[str, Any]:
    """Measure one library."""
    rope = ROPES[name](THETA)
    assert rope is not None
    row = {"name": name, "pairing": rope.pairing, "cos_sin_worst": far_errors(rope, window)}
    row["rules"] = scaling_rules(name)
    row["packed_worst"] = packed_error(rope)
    if name in CAST:
        for key, dtype in (("module_float32", torch.float32), ("module_bfloat16", torch.bfloat16)):
            error = bfloat16_error(CAST[name](THETA, dtype).rotate, rope.pairing)
            row.setdefault("bfloat16_worst", {})[key] = error
    return row


def joined(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Put rows that only the later run has, and what it ran with, into the earlier one."""
    known = {row["name"] for row in earlier["rows"]}
    rows = [row for row in later["rows"] if row["name"] not in known]
    facts = {key: later[key] for key in ("command", "commit", "started", "versions")}
    note = {**facts, "rows": [row["name"] for row in rows]}
    return earlier | {"rows": earlier["rows"] + rows, "added": [*earlier.get("added", []), note]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is installed, print it and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--window", type=int, default=64, help="positions below each end")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--add", action="store_true", help="keep rows of libraries absent here")
    parser.add_argument("--out", type=Path, help="default: results/comparison.json beside this")
    parser.add_argument("--smoke", action="store_true", help="few positions, nothing written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    results, began = conditions(options.threads), time.monotonic()
    present = {n: p for n, p in LIBRARIES.items() if p is None or installed(p) is not None}
    results["versions"] |= {p: installed(p) for p in present.values() if p is not None}
    results["theta"], results["head_dim"] = THETA, HEAD_DIM
    window = 4 if options.smoke else options.window
    results["rows"] = [measured(name, window) for name in present]
    results["duration_s"] = round(time.monotonic() - began, 1)
    for row in results["rows"]:
        print(row)
    out = options.out or (None if options.smoke else FOLDER / "results" / "comparison.json")
    if out is None:
        return
    if options.add:
        results = joined(read_json(out), results)
    write_json(out, results)
    print(out)


if __name__ == "__main__":
    main()
