"""A measurement of a model, from a plan to plain facts, as in its JSON file."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ropewalk.bench.contenders import kernel_serves
from ropewalk.bench.model.bounds import check_step
from ropewalk.bench.model.movement import logit_movement
from ropewalk.bench.model.passage import passage
from ropewalk.bench.model.plan import TRAINING, ModelPlan
from ropewalk.bench.model.steps import LENGTHS, Views, time_work
from ropewalk.bench.plan import using_threads
from ropewalk.bench.run import device_name
from ropewalk.files import Facts
from ropewalk.machine import conditions
from ropewalk.machine import load as machine_load
from ropewalk.tools.models.source import (
    Source,
    check_memory,
    load,
    quiet,
    random_tokens,
    read_source,
)


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
    source = read_source(plan.path, plan.trust_remote_code)
    for dtype in plan.dtypes:
        check_memory(source, dtype, plan.device, TRAINING in plan.work)
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
    source: Source,
    dtype: torch.dtype,
    watch: Callable[[Facts], None],
    opening: Facts | None,
) -> Facts:
    """Return the facts of one dtype; `watch` gets `opening` when nothing can be refused anymore."""
    name = str(dtype).removeprefix("torch.")
    watch({"now": f"{'loading' if source.has_weights else 'building'} the model in {name}"})
    gc.collect()  # the model in the dtype before
    model = load(source, dtype, plan.device)
    text, kind = passage(source)
    tokens = random_tokens(source, plan.tokens or LENGTHS[0]).to(plan.device)
    patched: list[Any] = []
    with quiet():
        views = Views.of(model, lambda view: patched.append(patch_model(view)), tokens[:, :8])
        if plan.tokens is not None:
            check_step(views.before, tokens, plan)
        if opening is not None:
            watch(opening)
        facts = {"dtype": name, **_model_facts(model, source)}
        facts["patch"] = {
            "says": str(patched[0]),
            "tables": list(patched[0].tables),
            "taken": list(patched[0].taken),
            "left": [list(each) for each in patched[0].left],
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


def _model_facts(model: nn.Module, source: Source) -> Facts:
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
        says = str(error).removeprefix("model must ")
        raise ValueError(f"--model must {says}") from error
