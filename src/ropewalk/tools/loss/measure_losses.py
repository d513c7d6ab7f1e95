"""`measure_loss`: the loss of the same tokens by context and by position, under each rule.

`measure_files` measures the same from a model's folder and a text, for `ropewalk extend --model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ropewalk.checks import check_number, shown
from ropewalk.files import shown_path
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.scaling import Scaling, YaRN
from ropewalk.tools import model_files
from ropewalk.tools.live_model import overflow, preserved
from ropewalk.tools.loss.loss_measurement import (
    NONE,
    OWN,
    ContextLoss,
    LossMeasurement,
    RuleLoss,
    Shifts,
    difference,
    unit_of,
)
from ropewalk.tools.loss.loss_passes import (
    Work,
    check_bounds,
    check_rules,
    measure_shifts,
    run_pass,
    spec_of,
)
from ropewalk.tools.patch import patch

PASSAGES = 16
SECONDS = 3600.0


def measure_loss(
    model: nn.Module,
    tokens: Tensor,
    rules: Mapping[str, Scaling],
    *,
    original: int,
    to: int,
    passages: int = PASSAGES,
    start: Tensor | None = None,
    seconds: float = SECONDS,
    watch: Callable[[str], None] = lambda doing: None,
) -> LossMeasurement:
    """Return the loss of the same tokens as the context before them grows, under each rule.

    model: a causal language model of transformers. It is patched (`ropewalk.patch`) with each rule
        in turn, and is as before afterwards.
    tokens: the ids of a text (N,), at least `to`. Up to `passages` passages are spread evenly over
        it. The last 256 tokens of each are scored (original / 4 if that is less), with contexts
        from original / 4 to `to` tokens, which include them.
    rules: rules of `ropewalk.scaling` by name, for the context `to`; those of `tools.extend`.
        Without any, only the model's own ropes are measured, even if patch cannot replace them.
    original: the context in training.
    start: special tokens before each context, such as one for the beginning of a text.
    seconds: refuse a measurement that would take longer.
    watch: receives what is being done, in words.

    The same passages are also scored at shifted positions, where the loss of a relative rope must
    not change. A loss says little about answers that need far context (LongPPL, arXiv 2410.23771).

    Raises ValueError if there are too few tokens, if patch cannot replace the model's rope, or if
    the measurement would take more memory than is free or more than `seconds`. A rule that patch
    refuses for this model is a result with the reason.

    Example:
        >>> import torch, transformers
        >>> from ropewalk import scaling, tools
        >>> config = transformers.LlamaConfig(
        ...     hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        ...     vocab_size=50, max_position_embeddings=64)
        >>> model = transformers.LlamaForCausalLM(config)
        >>> rules = {"yarn": scaling.YaRN(4.0, original_length=64)}
        >>> tokens = torch.randint(50, (1000,))
        >>> found = tools.measure_loss(model, tokens, rules, original=64, to=256)
        >>> [each.context for each in found.result("yarn").contexts]
        [32, 64, 128, 256]
        >>> [each.shifts.flat for each in found.results]
        [True, True]
    """
    check_rules(rules)
    work = Work.of(model, tokens, start, original, to, passages)
    check_number("seconds", seconds)
    with preserved(model):
        model.eval()
        base, not_patched = _base(model, rules)
        refused = _refused(model, rules)
        counts = work.counts(1 + len(rules) - len(refused))
        check_bounds(model, work.ids, counts, work.scored, seconds)
        losses, shifts = {}, {}
        for name, rule in {base: None, **rules}.items():
            if name in refused:
                continue
            with nullcontext() if not_patched else patch(model, scaling=rule):
                measured = _losses(model, work, name, watch)
                if isinstance(measured, str) and name == base:
                    raise ValueError(f"model must run on {to:,} tokens, got {measured}")
                if isinstance(measured, str):
                    refused[name] = measured
                    continue
                losses[name] = measured
                watch(f"positions under {name}")
                shifts[name] = _shifts(model, work)
        watch("positions of the model as it is")
        unpatched = _shifts(model, work)
    results = [
        RuleLoss(name, rule, refused=refused[name])
        if name in refused
        else RuleLoss(name, rule, _contexts(losses[name], losses[base], original), shifts[name])
        for name, rule in {base: None, **rules}.items()
    ]
    at_end = {name: of_rule[to] for name, of_rule in losses.items()}
    lowest = min(at_end, key=lambda name: float(at_end[name].mean()))
    others = [name for name in at_end if name != lowest]
    return LossMeasurement(
        original=original,
        to=to,
        scored=work.scored,
        ends=work.ends,
        unit=unit_of(len(work.ends)),
        shifted_length=work.shifted,
        results=tuple(results),
        unpatched=unpatched,
        lowest=lowest,
        tied=tuple(n for n in others if not difference(at_end[n], at_end[lowest]).shown),
        not_patched=not_patched,
    )


def _refused(model: nn.Module, rules: Mapping[str, Scaling]) -> dict[str, str]:
    """Return the rules that patch refuses, with the reason. Raise ValueError if it refuses all."""
    refused = {}
    for name, rule in rules.items():
        try:
            patch(model, scaling=rule)()
        except ValueError as error:
            refused[name] = str(error)
    if rules and len(refused) == len(rules):
        name, why = next(iter(refused.items()))
        raise ValueError(f"rules must have one that this model can have, got {name}: {why}")
    return refused


def _base(model: nn.Module, rules: Mapping[str, Scaling]) -> tuple[str, str | None]:
    """Return the name of the model's own ropes, and why patch cannot replace them, or None.

    Raise ValueError if it cannot and there are rules to measure.
    """
    try:
        patch(model)()
        not_patched = None
    except ValueError as error:
        if rules:
            raise
        not_patched = str(error)
    layers = spec_of(model).layers
    own = any(layer.rope and layer.rope.scaling for layer in layers)
    return OWN if own else NONE, not_patched


def _losses(
    model: nn.Module, work: Work, name: str, watch: Callable[[str], None]
) -> dict[int, Tensor] | str:
    """Return the losses (P, T) for each context, or why there are none.

    The longest context comes first: a model that cannot run it fails at once.
    """
    losses = {}
    for context in reversed(work.grid):
        watch(f"{name} with {context:,} tokens of context")
        try:
            runs = [run_pass(model, ids, work.scored) for ids in work.windows(context)]
        except Exception as error:  # code of a model may raise anything
            other = isinstance(error, (AttributeError, TypeError))  # no matter of length
            way = "" if other else "; a smaller context (to) may run"
            return f"{_line(error)} with {context:,} tokens{way}"
        losses[context] = torch.stack([run.losses for run in runs])
        if not losses[context].isfinite().all():
            way = overflow(model)
            return f"a loss that is not a finite number, with {context:,} tokens{way}"
    return dict(reversed(losses.items()))


def _shifts(model: nn.Module, work: Work) -> Shifts:
    try:
        return measure_shifts(model, work.windows(work.shifted), work.scored, work.to)
    except Exception as error:  # code of a model may raise anything
        return Shifts(not_compared=_line(error))


def _contexts(
    losses: Mapping[int, Tensor], base: Mapping[int, Tensor], original: int
) -> tuple[ContextLoss, ...]:
    return tuple(
        ContextLoss(
            context=context,
            loss=float(of_tokens.mean()),
            by_passage=tuple(of_tokens.mean(1).tolist()),
            from_none=difference(of_tokens, base[context]),
            from_original=difference(of_tokens, base[original]),
        )
        for context, of_tokens in losses.items()
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(' '.join(str(error).split()), 160)}"


#: How much of a text is read: MOST_TOKENS or MOST_CONTEXTS times `to` tokens, the larger one.
MOST_TOKENS, MOST_CONTEXTS = 1_000_000, 4


@dataclass(frozen=True)
class LossPlan:
    """What to measure: a model's folder with config.json and safetensors, and a text file."""

    model: Path
    text: Path
    device: torch.device
    dtype: torch.dtype = torch.float32
    passages: int = PASSAGES
    seconds: float = SECONDS
    trust_remote_code: bool = False


def read_model(plan: LossPlan) -> model_files.Source:
    """Return the model's config. Raises ValueError if the folder has no model with weights."""
    source = model_files.read_source(plan.model, plan.trust_remote_code)
    if not source.has_weights:
        raise ValueError(
            f"--model must be a folder with weights (*.safetensors), got {shown_path(plan.model)}"
        )
    return source


def measure_files(
    plan: LossPlan,
    source: model_files.Source,
    rules: Mapping[str, Scaling],
    original: int,
    to: int,
    watch: Callable[[str], None] = lambda doing: None,
) -> LossMeasurement:
    """Return what `measure_loss` measures; the text is read before the weights are loaded.

    rules: those of `extend`, by name.

    Raises ValueError as `measure_loss` does, and if the text has fewer than `to` tokens or the
    weights do not fit into memory.
    """
    most = max(MOST_TOKENS, MOST_CONTEXTS * to)
    tokens = model_files.read_tokens(source, plan.text, to, most)
    start = model_files.start_tokens(source)
    model_files.check_memory(source, plan.dtype, plan.device)
    watch("loading the model")
    model = model_files.load(source, plan.dtype, plan.device)
    conventions = CONVENTIONS.get(str(source.spec.model_type))
    if conventions is not None:  # the code of a model type sets fields of YaRN
        fields = conventions.yarn_fields
        rules = {n: replace(r, **fields) if isinstance(r, YaRN) else r for n, r in rules.items()}
    with model_files.quiet():
        return measure_loss(
            model, tokens, rules, original=original, to=to, passages=plan.passages, start=start,
            seconds=plan.seconds, watch=watch,
        )  # fmt: skip
