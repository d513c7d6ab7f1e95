"""The one clock of all benchmarks: rows in turn, ratios within rounds, intervals without a model.

Each round times every row once, so that a change of the machine's speed affects all of them. A
ratio is taken within a round.
"""

from __future__ import annotations

import gc
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any, TypeVar

import torch

Run = Callable[[], object]
Measured = TypeVar("Measured")

LEAST_SAMPLE = 2e-3  # seconds; in shorter samples, the clock and other processes would count
LEAST_ROUNDS = 6  # with fewer, the least and the largest ratio are no 95 % interval
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Step:
    """A timed call, with what comes before it and is not timed.

    prepare: returns the argument of `run`. around: a context of both.
    """

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class Ratio:
    """The median of ratios within rounds, and its 95 % interval.

    The bounds are ratios of two rounds, as ranks say: no distribution is assumed, only that rounds
    are independent. They are None with fewer than six rounds.
    """

    median: float
    low: float | None
    high: float | None
    rounds: int

    @classmethod
    def of(cls, above: Sequence[float], below: Sequence[float]) -> Ratio:
        """Return that of above / below, a number of each from each round."""
        ratios = sorted(a / b for a, b in zip(above, below, strict=True))
        rank = interval_rank(len(ratios))
        low, high = (None, None) if rank is None else (ratios[rank], ratios[-1 - rank])
        return cls(median(ratios), low, high, len(ratios))


def in_turn(
    rows: Mapping[str, Callable[[], Measured]],
    rounds: int | None,
    seconds: float = 0.0,
    *,
    clock: Callable[[], float] = time.perf_counter,
    after_round: Callable[[int], None] = lambda number: None,
) -> dict[str, list[Measured]]:
    """Return what each row measured, once in every round.

    Without `rounds`, there are as many as fit into `seconds`, but at least six. The order is drawn
    again in each round, so that no row always finds in the cache what the same other row left.
    after_round: receives the number of rounds that are done.
    """
    measured: dict[str, list[Measured]] = {name: [] for name in rows}
    order, draw, done = list(rows), random.Random(0), 0
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    began = clock()
    try:
        while done < (rounds or LEAST_ROUNDS) or (rounds is None and clock() - began < seconds):
            gc.collect(1)  # what rows left; collecting all takes longer than a short row
            draw.shuffle(order)
            for name in order:
                measured[name].append(rows[name]())
            done += 1
            after_round(done)
    finally:
        if collecting:
            gc.enable()
    return measured


def time_rows(
    runs: Mapping[str, Run], device: torch.device, rounds: int | None, seconds: float
) -> dict[str, list[float]]:
    """Return the seconds of one call, by row and round; short calls are repeated in a sample."""
    calls = {name: _calls_per_sample(run, device) for name, run in runs.items()}
    rows = {name: partial(_sample, run, calls[name], device) for name, run in runs.items()}
    return in_turn(rows, rounds, seconds)


def time_steps(
    steps: Mapping[str, Step],
    device: torch.device,
    rounds: int | None,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each step by round, after one run of each that is not counted."""
    for step in steps.values():
        _seconds_of(step, device, clock)
    rows = {name: partial(_seconds_of, step, device, clock) for name, step in steps.items()}
    return in_turn(rows, rounds, seconds, clock=clock)


def interval_rank(count: int) -> int | None:
    """Return r so that the median lies between value r and value -1 - r in 95 % of samples.

    Values are sorted, r counts from 0. None if there are too few values.
    """
    outside, rank = 0.0, None
    for r in range((count + 1) // 2):
        outside += 2 * math.comb(count, r) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = r
    return rank


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


def finish(device: torch.device) -> None:
    """Wait until an asynchronous device has finished all its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _peak_on_cpu(run: Run) -> int:
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints its start and stop
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    del result
    in_use = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            in_use += event.nbytes()
            most = max(most, in_use)
    return most


def _sample(run: Run, call_count: int, device: torch.device) -> float:
    finish(device)
    began = time.perf_counter()
    for _ in range(call_count):
        run()
    finish(device)
    return (time.perf_counter() - began) / call_count


def _calls_per_sample(run: Run, device: torch.device) -> int:
    """Warm up, and return how many calls make a sample long enough."""
    _sample(run, 2, device)
    once = min(_sample(run, 1, device) for _ in range(3))
    return max(1, math.ceil(LEAST_SAMPLE / max(once, 1e-7)))


def _seconds_of(step: Step, device: torch.device, clock: Callable[[], float]) -> float:
    with step.around():
        argument = step.prepare()
        finish(device)
        began = clock()
        step.run(argument)
        finish(device)
        return clock() - began
