"""Exactness: the errors of cos, sin, rotated vectors and scores at far positions, ours and others'.

The reference is mpmath, which comes with torch. Ropes of other libraries are called if they are
installed; without transformers, copies of its formulas are measured. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from common import FOLDER, conditions, write_pictures
from exact_angles import RULE_CASES, exact, exact_frequencies
from exactness_report import drawn, shown
from far_ropes import (
    DRAWN,
    FARTHEST,
    HEAD_DIM,
    LARGEST_TABLE,
    PEERS,
    ROPES,
    Rope,
    Tables,
    float64_product,
    gptj,
    installed,
    llama,
    llama_written_out,
    rotated,
)
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, scaling
from ropewalk.files import write_json
from ropewalk.machine import cores
from ropewalk.rotary.tables import apply_tables

THETAS = (10_000.0, 500_000.0)
ENDS = (4_096, 131_072, 1_000_000, 10_000_000)
TABLE_CLAIM, OUTPUT_CLAIM = 1e-7, 1e-6


def unit_vectors(heads: int, count: int, seed: int) -> Tensor:
    """Return random float32 vectors (1, heads, count, D) of length 1, up to rounding."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, heads, count, HEAD_DIM, generator=generator, dtype=torch.float64)
    return (x / x.norm(dim=-1, keepdim=True)).float()


def paired(x: Tensor, pairing: str) -> Tensor:
    """Put halves where this pairing expects them, so that all ropes rotate the same pairs."""
    return x if pairing == "half" else torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)


def table_errors(ours: Tables, reference: Tables) -> dict[str, float]:
    """Return the worst and root-mean-square error of cos and sin, and of both together."""
    wrong = [a.double() - b for a, b in zip(ours, reference, strict=True)]
    worst = [e.abs().max().item() for e in wrong]
    square = [e.square().mean().item() for e in wrong]
    return {
        "cos_worst": worst[0],
        "sin_worst": worst[1],
        "cos_rms": square[0] ** 0.5,
        "sin_rms": square[1] ** 0.5,
        "worst": max(worst),
        "rms": (sum(square) / 2) ** 0.5,
    }


def output_error(turned_x: Tensor, x: Tensor, reference: Tables, pairing: str) -> float:
    """Return the worst error of rotated vectors, relative to their length, against float64."""
    expected = rotated(x.double(), *reference, pairing)
    wrong = (turned_x.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return wrong.max().item()


def score_error(rope: Rope, positions: Tensor, one_step: Tables, heads: int) -> float:
    """Return the worst error of q·k of unit vectors, k one before q: one number everywhere.

    The products are summed in float64, so that the error is that of the rotated vectors.
    """
    q, k = (paired(unit_vectors(heads, 1, seed), rope.pairing) for seed in (1, 2))
    here, before = (x.expand(-1, -1, len(positions) - 1, -1) for x in (q, k))
    rotated_q = rope.rotate(here, positions[1:]).double()
    rotated_k = rope.rotate(before, positions[:-1]).double()
    expected = (rotated(q.double(), *one_step, rope.pairing) * k.double()).sum(-1)
    return ((rotated_q * rotated_k).sum(-1) - expected).abs().max().item()


@torch.no_grad()
def compare(
    ropes: dict[str, Callable[[float], Rope | None]], window: int, heads: int
) -> list[dict[str, Any]]:
    """Measure every rope at every theta in the window below every end."""
    rows = []
    for theta in THETAS:
        frequencies = exact_frequencies(theta)
        one_step = exact(frequencies, torch.tensor([1]))
        made = {name: make(theta) for name, make in ropes.items()}
        for end in ENDS:
            positions = torch.arange(end - window, end)
            reference = exact(frequencies, positions)
            vectors = unit_vectors(heads, window, 0)
            for name, rope in made.items():
                if rope is None or end > rope.max_positions:
                    continue
                x = paired(vectors, rope.pairing)
                out = rope.rotate(x, positions)
                rows.append(
                    {
                        "name": name,
                        "theta": theta,
                        "end": end,
                        **table_errors(rope.tables(positions), reference),
                        "output": output_error(out, x, reference, rope.pairing),
                        "score": score_error(rope, positions, one_step, heads),
                    }
                )
    return rows


@torch.no_grad()
def sweep(powers: Sequence[int], count: int) -> dict[str, list[list[float]]]:
    """Return the worst error of cos and sin below each power of two, for the figure."""
    theta = THETAS[0]
    frequencies = exact_frequencies(theta)
    made = {name: ROPES[name](theta) for name in DRAWN}
    curves: dict[str, list[list[float]]] = {name: [] for name in DRAWN}
    for power in powers:
        positions = torch.arange(2**power - count, 2**power)
        reference = exact(frequencies, positions)
        for name, rope in made.items():
            assert rope is not None
            worst = table_errors(rope.tables(positions), reference)["worst"]
            curves[name].append([2**power, worst])
    return curves


@torch.no_grad()
def by_rule(count: int, heads: int) -> list[dict[str, Any]]:
    """Measure ropewalk under every rule up to ±2^31, and the float64 product too."""
    if missing := set(scaling.RULES) - {type(rule) for _, rule, _ in RULE_CASES}:
        raise ValueError(f"every rule must be measured, got none of {missing}")
    edges = [0, 1, -1, FARTHEST, FARTHEST - 1, -FARTHEST - 1, *ENDS]
    generator = torch.Generator().manual_seed(0)
    logarithms = torch.rand(count, generator=generator, dtype=torch.float64) * 31
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    positions = torch.cat((torch.tensor(edges), (2**logarithms).long() * signs))
    x = unit_vectors(heads, len(positions), 3)
    rows = []
    for theta, rule, length in RULE_CASES:
        reference = exact(exact_frequencies(theta, rule, length), positions)
        spec = RotarySpec(HEAD_DIM, theta=theta, scaling=rule)
        rope, amplitude = RotaryEmbedding(spec), spec.amplitude_at(length)
        tables = rope.tables(positions, length, extrapolate=True)
        cos, sin = (t.double() / amplitude for t in tables)
        scaled = reference[0] * amplitude, reference[1] * amplitude
        (out,) = apply_tables(spec, tables, x)
        rows.append(
            {
                "name": "ropewalk",
                "rule": "none" if rule is None else type(rule).__name__,
                "parameters": repr(rule),
                "theta": theta,
                "amplitude": amplitude,
                **table_errors((cos, sin), reference),
                "output": output_error(out, x, scaled, "half"),
            }
        )
        if rule is None:
            product = float64_product(theta)
            rows.append(
                {
                    "name": "float64 product",
                    "rule": "none",
                    "theta": theta,
                    **table_errors(product.tables(positions), reference),
                    "output": output_error(product.rotate(x, positions), x, reference, "half"),
                }
            )
    return rows


@torch.no_grad()
def rounding(window: int, heads: int) -> list[dict[str, Any]]:
    """Count elements of ropewalk's half-precision output that are not float32's rounded once."""
    rows = []
    for dtype in (torch.bfloat16, torch.float16):
        elements = differing = 0
        for pairing in ("half", "interleaved"):
            rope = RotaryEmbedding(RotarySpec(HEAD_DIM, pairing=pairing))
            x = unit_vectors(heads, window, 4).to(dtype)
            for end in (*ENDS, FARTHEST):
                positions = torch.arange(end - window, end)
                once = rotated(x.float(), *rope.tables(positions), pairing).to(dtype)
                elements += x.numel()
                differing += int((rope.rotate(x, positions) != once).sum())
        name = str(dtype).removeprefix("torch.")
        rows.append({"dtype": name, "elements": elements, "differing": differing})
    return rows


@torch.no_grad()
def written_out_as_driven(window: int) -> dict[str, bool]:
    """Return whether the formulas copied here give transformers' numbers, bit for bit."""
    if installed("transformers") is None:
        return {}
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    near = torch.arange(LARGEST_TABLE - window, LARGEST_TABLE)
    far = torch.arange(ENDS[-1] - window, ENDS[-1])
    sin, cos = create_sinusoidal_positions(LARGEST_TABLE, HEAD_DIM)[near].chunk(2, dim=-1)
    written = gptj(10_000.0)
    assert written is not None
    same = {"GPT-J": all(map(torch.equal, written.tables(near), (cos, sin)))}
    half = torch.bfloat16
    for name, dtypes in {
        "transformers, Llama": (torch.float32, torch.float32),
        "Llama, bfloat16 tables": (torch.float32, half),
        "Llama, .bfloat16()": (half, half),
    }.items():
        pair = llama_written_out(THETAS[0], *dtypes), llama(THETAS[0], *dtypes)
        same[name] = all(map(torch.equal, *(rope.tables(far) for rope in pair)))
    return same


def claimed(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare what ropewalk claims with what was measured, in every window and with every rule."""
    ours = [r for r in results["rows"] + results["rules"] if r["name"] == "ropewalk"]
    measured = {
        "worst error of cos and sin, up to ±2^31": (TABLE_CLAIM, max(r["worst"] for r in ours)),
        "worst relative error of float32 output": (OUTPUT_CLAIM, max(r["output"] for r in ours)),
        "half-precision elements not rounded once": (
            0,
            sum(row["differing"] for row in results["rounding"]),
        ),
    }
    return [
        {"claim": claim, "limit": limit, "measured": value, "holds": value <= limit}
        for claim, (limit, value) in measured.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write all numbers as JSON and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--window", type=int, default=64, help="positions below each end")
    parser.add_argument("--heads", type=int, default=64, help="random vectors at each position")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, help="default: results/exactness.json in this folder")
    parser.add_argument("--smoke", action="store_true", help="few positions")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.window, options.heads = 4, 2
    if options.window < 2 or options.heads < 1:
        parser.error("window must be at least 2, heads at least 1")
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    began = time.monotonic()
    peers = {name: installed(name) for name in PEERS}
    results["versions"] |= {"mpmath": version("mpmath")}
    results["versions"] |= {name: found for name, found in peers.items() if found is not None}
    absent = [name for name, found in peers.items() if found is None]
    ropes = {name: make for name, make in ROPES.items() if name not in absent}
    results |= {
        "head_dim": HEAD_DIM,
        "window": options.window,
        "vectors_at_each_position": options.heads,
        "absent": absent,
        "written_out_as_driven": written_out_as_driven(options.window),
        "rows": compare(ropes, options.window, options.heads),
        "rules": by_rule(4 if options.smoke else 128, options.heads),
        "rounding": rounding(options.window, options.heads),
        "sweep": sweep(range(4, 32, 9 if options.smoke else 1), 4 if options.smoke else 16),
    }
    results["claims"] = claimed(results)
    results["duration_s"] = round(time.monotonic() - began, 1)
    print(shown(results))
    out = options.out or (None if options.smoke else FOLDER / "results" / "exactness.json")
    if out is not None:
        write_json(out, results)
        write_pictures(out, drawn(results["sweep"], TABLE_CLAIM))
        print(f"\n{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
