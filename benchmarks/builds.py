"""The C kernels of two builds, such as another compiler's: equal bits, and their times in turn.

`python benchmarks/builds.py OTHER` compares the kernels of this installation with those below the
folder OTHER, such as a wheel that was unpacked. One thread, by its processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from common import FOLDER, conditions, table
from torch import Tensor

from ropewalk import RotarySpec
from ropewalk.bench.clock import Ratio, Run, Step, time_steps
from ropewalk.files import write_json
from ropewalk.model import _attend
from ropewalk.rotary.kernels import _rotate, cpu
from ropewalk.rotary.reference import Layout

ROUNDS = 60
DTYPES = ("bfloat16", "float16", "float32")
SETS = ("portable", "avx2", "avx512", "avx512bf16")


def kernel(folder: Path, name: str) -> ModuleType:
    """Load the compiled module of this name from anywhere below the folder."""
    (file,) = folder.rglob(f"{name}*.so")
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rotating(module: ModuleType, dtype: str, pairing: str, most: str) -> tuple[Run, Tensor]:
    """Return a call that rotates the queries of a prompt, and the tensor that it writes."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 8, 1024, 128, generator=draw).to(getattr(torch, dtype))
    angles = torch.arange(1024.0)[:, None] * RotarySpec(head_dim=128).inverse_frequencies().float()
    cos, sin, out = angles.cos(), angles.sin(), torch.empty_like(x)
    layout = Layout.of("half" if pairing == "half" else "interleaved")

    def call() -> None:
        module.limit(most)
        module.rotate((x,), (out,), cos, sin, 0, layout, 1, cpu.CHUNK)

    return call, out


def attending(module: ModuleType, most: str) -> tuple[Run, Tensor]:
    """Return a call that attends with one query of 64 sentences, and the tensor it writes."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(64, 8, n, 64, generator=draw) for n in (1, 40, 40))
    out = torch.empty_like(q)

    def call() -> None:
        module.limit(most)
        module.attend(q, k, v, None, out, 0.125, 1)

    return call, out


def compared(here: tuple[Run, Tensor], other: tuple[Run, Tensor], rounds: int) -> dict[str, Any]:
    """Return whether both write the same bits, and the ratio of the times, other to here."""
    steps = {
        name: Step(lambda _, call=call: call())
        for name, (call, _) in (("here", here), ("other", other))
    }
    time_steps(steps, torch.device("cpu"), 2, 0.0)  # warms up
    seconds = time_steps(steps, torch.device("cpu"), rounds, 0.0, clock=time.thread_time)
    ratio = Ratio.of(seconds["other"], seconds["here"])
    far = float((here[1].float() - other[1].float()).abs().max())
    bits = [out.view(torch.uint8) for _, out in (here, other)]
    return {"equal": torch.equal(*bits), "far": far, "ratio": [ratio.median, ratio.low, ratio.high]}


def measured(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Compare both kernels in every set of instructions that the processor has."""
    rotate, attend = kernel(folder, "_rotate"), kernel(folder, "_attend")
    rows = []
    for most in (name for name in SETS if _rotate.limit(name) == rotate.limit(name) == name):
        for dtype in DTYPES:
            for pairing in ("half", "interleaved"):
                pair = (rotating(module, dtype, pairing, most) for module in (_rotate, rotate))
                rows.append({"of": f"rotation, {dtype}, {pairing}", "set": most})
                rows[-1] |= compared(*pair, rounds)
    for most in (name for name in SETS if _attend.limit(name) == attend.limit(name) == name):
        pair = (attending(module, most) for module in (_attend, attend))
        rows.append({"of": "attention, float32", "set": most, **compared(*pair, rounds)})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the ratios as Markdown, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="a folder with the other build's kernels")
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "builds.json")
    parser.add_argument("--smoke", action="store_true", help="few rounds")
    options = parser.parse_args(arguments)
    results = conditions(1)
    results["rows"] = measured(options.other, 6 if options.smoke else ROUNDS)
    rows = [
        [
            row["of"],
            row["set"],
            "yes" if row["equal"] else f"to {row['far']:.1e}",
            "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio"]),
        ]
        for row in results["rows"]
    ]
    print(table(["kernel", "instructions", "equal bits", "time, other / here"], rows))
    write_json(options.out, results)


if __name__ == "__main__":
    main()
