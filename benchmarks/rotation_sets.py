"""Rotation in place against copying, by instruction set, in several processes.

One thread, by its processor time, which other processes on the machine change least. See README.md
in this folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import FOLDER, conditions, table

from ropewalk.bench.clock import Run, Step, time_steps
from ropewalk.bench.contenders import ropewalk
from ropewalk.bench.workloads import IN_PLACE, WORKLOADS, Case, copying
from ropewalk.files import write_json
from ropewalk.rotary.kernels import cpu

SETS = ("avx2", "avx512bf16")
DTYPES = ("bfloat16", "float16", "float32")
RUNS, ROUNDS = 9, 25
COPYING = "copying"


def rotating(case: Case, instructions: str) -> Run:
    """Return a call that rotates q and k of this case in place by one instruction set."""
    q, k = (x.clone() for x in case.tensors(-2))
    rotate = ropewalk(case).rotate

    def call() -> None:
        cpu._limit(instructions)
        rotate(q, k)

    return call


def one_run(dtype: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of processor time of each row, measured in turn."""
    torch.set_num_threads(1)
    case = Case(WORKLOADS["prefill"][0], IN_PLACE, getattr(torch, dtype), torch.device("cpu"))
    calls: dict[str, Run] = {COPYING: copying(case)}
    calls |= {name: rotating(case, name) for name in SETS if cpu._limit(name) == name}
    steps = {name: Step(lambda _, call=call: call()) for name, call in calls.items()}
    time_steps(steps, case.device, 2, 0.0)  # warms up
    seconds = time_steps(steps, case.device, rounds, 0.0, clock=time.thread_time)
    return {name: median(values) for name, values in seconds.items()}


def measured(dtype: str, runs: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of every run, and the ratios to copying."""
    # Each process has its own memory, whose place in the caches is what differs between runs.
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        found = pool.starmap(one_run, [(dtype, rounds)] * runs, chunksize=1)
    names = [name for name in found[0] if name != COPYING]
    return {
        "dtype": dtype,
        "seconds": found,
        "of_copy": {name: [run[name] / run[COPYING] for run in found] for name in names},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the ratios as Markdown, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "rotation-sets.json")
    parser.add_argument("--smoke", action="store_true", help="two short runs of one dtype")
    options = parser.parse_args(arguments)
    results = conditions(1)
    results["torch_instructions"] = torch.backends.cpu.get_cpu_capability().lower()
    runs, rounds = (2, 1) if options.smoke else (RUNS, ROUNDS)
    dtypes = DTYPES[:1] if options.smoke else DTYPES
    results["dtypes"] = [measured(dtype, runs, rounds) for dtype in dtypes]
    rows = [
        [f"{found['dtype']}, {name}", *(f"{ratio:.2f}" for ratio in ratios)]
        for found in results["dtypes"]
        for name, ratios in found["of_copy"].items()
    ]
    print(table(["× copy", *(f"run {i + 1}" for i in range(runs))], rows))
    write_json(options.out, results)


if __name__ == "__main__":
    main()
