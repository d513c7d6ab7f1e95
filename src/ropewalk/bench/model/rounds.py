"""Timing of steps in turn, and ratios of their times with intervals.

Each round times every step once, so that a change of the machine's speed affects all of them. A
ratio is taken within a round.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Any

import torch

from ropewalk.files import Facts

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


def time_steps(
    steps: Mapping[str, Step],
    device: torch.device,
    rounds: int | None,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each step by round, after one run of each that is not counted.

    Without `rounds`, there are as many as fit into `seconds`, but at least six. The order is drawn
    again in each round.
    """
    for step in steps.values():
        _seconds_of(step, device, clock)
    samples: dict[str, list[float]] = {name: [] for name in steps}
    order, draw, done = list(steps), random.Random(0), 0
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    began = clock()
    try:
        while done < (rounds or LEAST_ROUNDS) or (rounds is None and clock() - began < seconds):
            gc.collect(1)  # what steps left; collecting all takes longer than a step
            draw.shuffle(order)
            for name in order:
                samples[name].append(_seconds_of(steps[name], device, clock))
            done += 1
    finally:
        if collecting:
            gc.enable()
    return samples


def ratio(above: Sequence[float], below: Sequence[float]) -> Facts:
    """Return the median of above / below within rounds, and its 95 % interval.

    The bounds are ratios of two rounds, as ranks say: no distribution is assumed, only that rounds
    are independent. They are None with fewer than six rounds.
    """
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    rank = interval_rank(len(ratios))
    low, high = (None, None) if rank is None else (ratios[rank], ratios[-1 - rank])
    return {"median": median(ratios), "low": low, "high": high, "rounds": len(ratios)}


def interval_rank(count: int) -> int | None:
    """Return r so that the median lies between value r and value -1 - r in 95 % of samples.

    Values are sorted, r counts from 0. None if there are too few values.
    """
    outside, rank = 0.0, None
    for r in range((count + 1) // 2):
        outside += 2 * comb(count, r) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = r
    return rank


def _seconds_of(step: Step, device: torch.device, clock: Callable[[], float]) -> float:
    with step.around():
        argument = step.prepare()
        _finish(device)
        began = clock()
        step.run(argument)
        _finish(device)
        return clock() - began


def _finish(device: torch.device) -> None:
    """Wait until an asynchronous device has finished all its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
