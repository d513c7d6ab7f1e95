"""Timing: rows in turn, for several rounds, so that a slow machine affects all of them."""

from __future__ import annotations

import gc
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from statistics import quantiles

import torch

Run = Callable[[], object]

LEAST_SAMPLE = 2e-3  # seconds; in shorter samples, the clock and other processes would count
LEAST_ROUNDS = 5


def time_rows(
    runs: Mapping[str, Run], device: torch.device, rounds: int | None, seconds: float
) -> dict[str, list[float]]:
    """Return the seconds of one call, by row and round.

    Without `rounds`, there are as many as fit into `seconds`, but at least five. The order is drawn
    again in each round, so that no row always finds in the cache what the same other row left.
    """
    calls = {name: _calls_per_sample(run, device) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order, draw, done = list(runs), random.Random(0), 0
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    began = time.perf_counter()
    try:
        while done < (rounds or LEAST_ROUNDS) or (
            rounds is None and time.perf_counter() - began < seconds
        ):
            draw.shuffle(order)
            for name in order:
                samples[name].append(_sample(runs[name], calls[name], device))
            done += 1
    finally:
        if collecting:
            gc.enable()
    return samples


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def peak_call_memory(run: Run, device: torch.device) -> int | None:
    """Return the most bytes that a call uses beyond its arguments, including its results.

    torch's allocator counts them, on CPU through its profiler. None on other devices.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return _peak_on_cpu(run) if device.type == "cpu" else None


def _peak_on_cpu(run: Run) -> int:
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints its start and stop
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    del result
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def _sample(run: Run, call_count: int, device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    for _ in range(call_count):
        run()
    _finish(device)
    return (time.perf_counter() - began) / call_count


def _calls_per_sample(run: Run, device: torch.device) -> int:
    """Warm up, and return how many calls make a sample long enough."""
    _sample(run, 2, device)
    once = min(_sample(run, 1, device) for _ in range(3))
    return max(1, math.ceil(LEAST_SAMPLE / max(once, 1e-7)))


def _finish(device: torch.device) -> None:
    """Wait until an asynchronous device has finished all its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
