"""Refusal of a step that would take too long or too much memory, before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ropewalk.bench.model.plan import DECODE, TRAINING, ModelPlan
from ropewalk.machine import check_fits
from ropewalk.tools.models.cost import least_bytes, work_of

PATIENCE = 60.0  # seconds of one step, unless --seconds is more
SHORT = 32  # tokens of the first timed pass


def check_step(
    model: nn.Module,
    tokens: Tensor,
    plan: ModelPlan,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Raise ValueError if a step with these tokens (1, S) does not fit into memory or time.

    Passes of 32, 128, 512, … tokens are timed; the next one runs only if no estimate is too long.
    """
    count, trains = tokens.shape[1], TRAINING in plan.work
    logits = count if trains or DECODE in plan.work else 0
    check_fits(
        least_bytes(model, count, logits, trains=trains),
        plan.device,
        rule="--tokens must be fewer",
        what=f"one step with {count:,} tokens needs at least",
    )
    most, passes = max(PATIENCE, plan.seconds), 3 if trains else 1
    length = SHORT
    while length < count:
        try:
            taken = _seconds(model, tokens[:, :length], plan, clock)
        except Exception:  # the step itself reports what the model's code raises
            return
        whole = passes * taken * work_of(model, count) / work_of(model, length)
        if whole > most:
            raise ValueError(
                f"--tokens must be fewer: one step with {count:,} tokens would take about "
                f"{whole:,.0f} s, more than {most:,.0f} s; --seconds can allow more"
            )
        if whole < most / 10:
            return
        length *= 4


def _seconds(
    model: nn.Module, tokens: Tensor, plan: ModelPlan, clock: Callable[[], float]
) -> float:
    for _ in range(2 if tokens.shape[1] == SHORT else 1):  # the first pass warms up
        began = clock()
        with torch.no_grad():
            model(input_ids=tokens, use_cache=False)
        if plan.device.type != "cpu":
            torch.accelerator.synchronize(plan.device)
    return clock() - began
