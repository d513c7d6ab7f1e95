"""Refusal of a measurement that would take too long or too much memory, before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ropewalk.machine import check_fits
from ropewalk.tools.loss.passes import keeps_logits, run_pass
from ropewalk.tools.models.cost import least_bytes, work_of

FIRST = 32  # tokens of the first timed pass
RELIABLE = 512  # tokens; the time of a shorter pass may be that of reading the weights


def check_bounds(
    model: nn.Module,
    ids: Tensor,
    passes: Sequence[int],
    scored: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Raise ValueError if passes of these lengths do not fit into memory or into `seconds`.

    ids: tokens (N,), at least as many as the longest pass. Passes of 32, 128, 512, … tokens are
    timed; the next one runs only if the estimate is not safely short or too long already.
    """
    longest = max(passes)
    logits = scored + 1 if keeps_logits(model) else longest
    check_fits(
        least_bytes(model, longest, logits),
        ids.device,
        rule="to must be smaller",
        what=f"a pass of {longest:,} tokens needs at least",
    )
    work, length = sum(work_of(model, each) for each in passes), FIRST
    while length <= longest:
        try:
            taken = _seconds(model, ids[:length], clock)
        except Exception:  # the measurement itself reports what the model's code raises
            return
        whole = taken * work / work_of(model, length)
        if whole < seconds / 10:
            return
        if whole > seconds and (length >= RELIABLE or 4 * length > longest):
            raise ValueError(
                f"to or passages must be smaller, or rules fewer: {len(passes):,} passes would "
                f"take about {_rounded(whole)} s, more than {_rounded(seconds)} s; seconds can "
                f"allow more"
            )
        length *= 4


def _seconds(model: nn.Module, ids: Tensor, clock: Callable[[], float]) -> float:
    for _ in range(2 if len(ids) == FIRST else 1):  # the first pass warms up
        began = clock()
        run_pass(model, ids, 1)
        if ids.device.type != "cpu":
            torch.accelerator.synchronize(ids.device)
    return clock() - began


def _rounded(seconds: float) -> str:
    """Return a number of seconds; short ones keep two digits, so that none is 0."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"
