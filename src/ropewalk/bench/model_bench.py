"""Measurement of a model before and after `patch`, and without rotation: speed and logits.

Steps are prefill, decode and training. Views share the weights of one model, so that they take
turns without loading or undoing anything. A step that would take too long or too much memory is
refused before it begins.
"""

from __future__ import annotations

import copy
import gc
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, isnan
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.bench.bench_options import DECODE, PREFILL, TRAINING, ModelPlan, using_threads
from ropewalk.bench.clock import LEAST_ROUNDS, Ratio, Step, finish, time_steps
from ropewalk.bench.contenders import kernel_serves
from ropewalk.bench.logit_movement import logit_movement, passage
from ropewalk.bench.rotation_bench import device_name, error_line
from ropewalk.bench.rotation_share import Stopwatch, WithoutRotation
from ropewalk.files import Facts
from ropewalk.machine import check_fits, conditions
from ropewalk.machine import load as machine_load
from ropewalk.tools import model_files
from ropewalk.tools.model_cost import least_bytes, work_of

BEFORE, AFTER, WITHOUT = "before", "after", "without rotation"
WATCHED = {BEFORE: "before, watched", AFTER: "after, watched"}  # with a stopwatch
LENGTHS = (512, 256, 128, 64, 32)  # tokens that are tried
SHORT = LENGTHS[-1]  # tokens of the first timed pass
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
    patched: what `patch` changed.
    """

    before: nn.Module
    after: nn.Module
    without: WithoutRotation
    unrotated: nn.Module
    why_not: str | None
    watches: Mapping[str, Stopwatch]
    patched: Any

    @classmethod
    def of(cls, model: nn.Module, swap: Callable[[nn.Module], Any], tokens: Tensor) -> Views:
        """Make the views; `swap` is what patches."""
        after, unrotated = view_of(model), view_of(model)
        patched = swap(after)
        without = WithoutRotation(unrotated)
        watched = {BEFORE: model, AFTER: after} if tokens.device.type == "cpu" else {}
        watches = {name: Stopwatch(each) for name, each in watched.items()}
        return cls(model, after, without, unrotated, without.why_not(tokens), watches, patched)


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
        return {"work": work, "not_measured": error_line(error, most=200)}
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
    return {
        "seconds": {name: list(values) for name, values in samples.items()},
        "seconds_inside": {name: list(values) for name, values in inside.items()},
        "tokens_per_sample": count,
        "tokens_per_second": {name: count / median(values) for name, values in samples.items()},
        "times_as_fast": asdict(Ratio.of(before, after)),
        "rotation": {
            name: asdict(Ratio.of(values, samples[WATCHED[name]]))
            for name, values in inside.items()
        },
        "left_out": asdict(Ratio.of(before, samples[WITHOUT])) if WITHOUT in samples else None,
        "why_not_left_out": why_not,
    }


def _length(work: str, views: Views, tokens: Tensor, plan: ModelPlan) -> int:
    """Return the tokens of a step: those of the plan, or as many as fit into its seconds."""
    if plan.tokens is not None:
        return plan.tokens
    passes = FORWARDS[work] * _seconds(views.before, tokens[:, :SHORT], plan, time.perf_counter)
    fits = (n for n in LENGTHS if n <= tokens.shape[1] and passes * n / SHORT <= plan.seconds)
    return next(fits, min(SHORT, tokens.shape[1]))


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


PATIENCE = 60.0  # seconds of one step, unless --seconds is more


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
        finish(plan.device)
    return clock() - began


def measure_model(
    plan: ModelPlan,
    command: Sequence[str] = (),
    watch: Callable[[Facts], None] = lambda facts: None,
) -> Facts:
    """Measure a model; `watch` receives the conditions, then the facts of each dtype.

    Between these it receives {"now": what is being done}.

    Raises ValueError if the path is not that of a causal language model with a rope, or if its
    weights do not fit into memory.
    """
    began = time.monotonic()
    source = model_files.read_source(plan.path, plan.trust_remote_code)
    for dtype in plan.dtypes:
        model_files.check_memory(source, dtype, plan.device, TRAINING in plan.work)
    results: Facts = conditions(command, plan.threads, ["torch", "transformers"])
    results["machine"]["device"] = device_name(plan.device)
    results["kernel"] = kernel_serves(plan.device)
    results["path"] = str(plan.path)
    opening: Facts | None = dict(results)
    results["models"] = []
    with using_threads(plan.threads):
        for dtype in plan.dtypes:
            results["models"].append(_measure_dtype(plan, source, dtype, watch, opening))
            opening = None
            watch(results["models"][-1])
    results["machine"]["load_after"] = machine_load()
    results["duration_s"] = round(time.monotonic() - began, 1)
    return results


def _measure_dtype(
    plan: ModelPlan,
    source: model_files.Source,
    dtype: torch.dtype,
    watch: Callable[[Facts], None],
    opening: Facts | None,
) -> Facts:
    """Return the facts of one dtype; `watch` gets `opening` when nothing can be refused anymore."""
    name = str(dtype).removeprefix("torch.")
    watch({"now": f"{'loading' if source.has_weights else 'building'} the model in {name}"})
    gc.collect()  # the model in the dtype before
    model = model_files.load(source, dtype, plan.device)
    text, kind = passage(source)
    count = plan.tokens or LENGTHS[0]
    tokens = model_files.random_tokens(source, count).to(plan.device)
    with model_files.quiet():
        views = Views.of(model, patch_model, tokens[:, :8])
        if plan.tokens is not None:
            check_step(views.before, tokens, plan)
        if opening is not None:
            watch(opening)
        facts = {"dtype": name, **_model_facts(model, source)}
        facts["patch"] = {
            "says": str(views.patched),
            "tables": list(views.patched.tables),
            "taken": list(views.patched.taken),
            "left": [list(each) for each in views.patched.left],
        }
        facts["speed"] = []
        for work in plan.work:
            watch({"now": f"timing {work} in {name}"})
            facts["speed"].append(time_work(work, views, tokens, plan))
        watch({"now": f"moving a passage to far positions in {name}"})
        text = text.to(plan.device)
        facts["logits"] = {"tokens": kind} | logit_movement(
            views.before, views.after, text, source.spec, facts["config_positions"]
        )
    return facts


def _model_facts(model: nn.Module, source: model_files.Source) -> Facts:
    config = source.config.get_text_config(decoder=True)
    return {
        "model": type(model).__name__,
        "model_type": config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "parameters": sum(p.numel() for p in model.parameters()),
        "weights": "loaded" if source.has_weights else "random",
        "input": "text only" if source.of_many else "text",
        "attention": getattr(model.config, "_attn_implementation", None),
        "config_positions": getattr(config, "max_position_embeddings", None),
    }


def patch_model(model: nn.Module) -> Any:
    """Return what `patch` returns for this model."""
    from ropewalk.tools.patch import patch

    try:
        return patch(model)
    except ValueError as error:
        raise ValueError(f"--model must be one that patch can change: {error}") from error
