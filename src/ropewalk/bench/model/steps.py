"""Steps of a model: prefill, decode and training, before and after `patch`, and without rotation.

Views share the weights of one model, so that they take turns without loading or undoing anything.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, isnan
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.bench.model.inside import Stopwatch
from ropewalk.bench.model.plan import DECODE, PREFILL, TRAINING, ModelPlan
from ropewalk.bench.model.rounds import LEAST_ROUNDS, Step, ratio, time_steps
from ropewalk.bench.model.without import WithoutRotation
from ropewalk.files import Facts

BEFORE, AFTER, WITHOUT = "before", "after", "without rotation"
WATCHED = {BEFORE: "before, watched", AFTER: "after, watched"}  # with a stopwatch
LENGTHS = (512, 256, 128, 64, 32)  # tokens that are tried
#: Forward passes over all tokens, in five variants, the least rounds, and one that is not counted.
#: A backward pass takes as long as two of them; decode has one, for its context.
FORWARDS = {
    PREFILL: 5 * (LEAST_ROUNDS + 1),
    TRAINING: 3 * 5 * (LEAST_ROUNDS + 1),
    DECODE: 1,
}
MOST_DECODED = 32  # tokens per sample
SAMPLE = 0.25  # seconds of a decode sample


def view_of(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its parameters; buffers and attributes are copied."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


@dataclass(frozen=True)
class Views:
    """The same model before `patch`, after it, and without rotation.

    why_not: the reason if rotation cannot be left out. watches: of the rotation before and after
        `patch`; empty if the model is not on a CPU, whose calls return when they are done.
    """

    before: nn.Module
    after: nn.Module
    without: WithoutRotation
    unrotated: nn.Module
    why_not: str | None
    watches: Mapping[str, Stopwatch]

    @classmethod
    def of(cls, model: nn.Module, swap: Callable[[nn.Module], Any], tokens: Tensor) -> Views:
        """Make the views; `swap` is what patches."""
        after, unrotated = view_of(model), view_of(model)
        swap(after)
        without = WithoutRotation(unrotated)
        watched = {BEFORE: model, AFTER: after} if tokens.device.type == "cpu" else {}
        watches = {name: Stopwatch(each) for name, each in watched.items()}
        return cls(model, after, without, unrotated, without.why_not(tokens), watches)


def time_work(work: str, views: Views, tokens: Tensor, plan: ModelPlan) -> Facts:
    """Return the facts of one work: tokens per second, ratios and shares, with intervals.

    tokens: (1, S), as many as a step may have. If the model's code raises, `not_measured` says why.
    """
    try:
        tokens = tokens[:, : _length(work, views, tokens, plan)]
        steps, count, facts = _MAKERS[work](views, tokens)
        for watch in views.watches.values():
            watch.seconds.clear()
        samples = time_steps(steps, plan.device, plan.rounds, plan.seconds)
        # The first step is not counted.
        inside = {name: w.seconds[1:] for name, w in views.watches.items() if w.rotations}
        inside = {name: values for name, values in inside.items() if not isnan(sum(values))}
    except Exception as error:
        says = " ".join(str(error).split())[:200]
        return {"work": work, "not_measured": f"{type(error).__name__}: {says}"}
    finally:
        views.before.zero_grad(set_to_none=True)
        for model in (views.before, views.after, views.unrotated):
            model.eval()
    return {"work": work, **facts, **speeds(samples, count, inside, views.why_not)}


def speeds(
    samples: Mapping[str, list[float]],
    count: int,
    inside: Mapping[str, list[float]],
    why_not: str | None = None,
) -> Facts:
    """Return what samples of one work show.

    count: tokens per sample. inside: seconds of rotation within the watched steps.
    """
    before, after = samples[BEFORE], samples[AFTER]
    facts: Facts = {
        "seconds": {name: list(values) for name, values in samples.items()},
        "seconds_inside": {name: list(values) for name, values in inside.items()},
        "tokens_per_sample": count,
        "tokens_per_second": {name: count / median(values) for name, values in samples.items()},
        "times_as_fast": ratio(before, after),
        "rotation": {
            name: ratio(values, samples[WATCHED[name]]) for name, values in inside.items()
        },
        "left_out": None,
        "why_not_left_out": why_not,
    }
    if WITHOUT in samples:
        facts["left_out"] = ratio(before, samples[WITHOUT])
    return facts


def _length(work: str, views: Views, tokens: Tensor, plan: ModelPlan) -> int:
    """Return the tokens of a step: those of the plan, or as many as fit into its seconds."""
    if plan.tokens is not None:
        return plan.tokens
    least = LENGTHS[-1]
    few = tokens[:, :least]
    with torch.no_grad():
        views.before(input_ids=few, use_cache=False)
        began = time.perf_counter()
        views.before(input_ids=few, use_cache=False)
        if plan.device.type != "cpu":
            torch.accelerator.synchronize(plan.device)
    passes = FORWARDS[work] * (time.perf_counter() - began) / least
    fits = (n for n in LENGTHS if n <= tokens.shape[1] and passes * n <= plan.seconds)
    return next(fits, min(least, tokens.shape[1]))


def _prefill(views: Views, tokens: Tensor) -> tuple[dict[str, Step], int, Facts]:
    given: dict[str, Any] = {"input_ids": tokens, "use_cache": True}
    if "logits_to_keep" in inspect.signature(views.before.forward).parameters:
        given["logits_to_keep"] = 1  # as `generate` calls it

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(**given)

    steps = _each(views, lambda model: Step(lambda _: run(model)))
    return steps, tokens.shape[1], {"tokens": tokens.shape[1], "last_logits_only": len(given) > 2}


def _decode(views: Views, tokens: Tensor) -> tuple[dict[str, Step], int, Facts]:
    with torch.no_grad():
        cache = views.before(input_ids=tokens, use_cache=True).past_key_values
    if cache is None:
        raise ValueError("the model returns no cache")

    def run(model: nn.Module, own: Any, count: int) -> None:
        with torch.no_grad():
            for _ in range(count):
                own = model(input_ids=tokens[:, :1], past_key_values=own, use_cache=True)
                own = own.past_key_values

    run(views.before, copy.deepcopy(cache), 1)
    began = time.perf_counter()
    run(views.before, copy.deepcopy(cache), 1)
    count = min(MOST_DECODED, ceil(SAMPLE / (time.perf_counter() - began)))
    steps = _each(
        views,
        lambda model: Step(
            lambda own: run(model, own, count), prepare=lambda: copy.deepcopy(cache)
        ),
    )
    return steps, count, {"context": tokens.shape[1]}


def _training(views: Views, tokens: Tensor) -> tuple[dict[str, Step], int, Facts]:
    def prepare(model: nn.Module) -> None:
        model.train()
        model.zero_grad(set_to_none=True)

    def run(model: nn.Module) -> None:
        with torch.enable_grad():
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()

    steps = _each(views, lambda model: Step(lambda _: run(model), prepare=lambda: prepare(model)))
    return steps, tokens.shape[1], {"tokens": tokens.shape[1]}


def _each(views: Views, step_of: Callable[[nn.Module], Step]) -> dict[str, Step]:
    steps = {BEFORE: step_of(views.before), AFTER: step_of(views.after)}
    for name, watch in views.watches.items():
        steps[WATCHED[name]] = replace(steps[name], around=watch.running)
    if views.why_not is None:
        steps[WITHOUT] = replace(step_of(views.unrotated), around=views.without.apart)
    return steps


_MAKERS = {PREFILL: _prefill, DECODE: _decode, TRAINING: _training}
