"""From a model's folder and a text file to a measurement: what `ropewalk extend --model` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ropewalk.files import shown_path
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.scaling import Scaling, YaRN
from ropewalk.tools.loss.facts import LossMeasurement
from ropewalk.tools.loss.measure import PASSAGES, SECONDS, measure_loss
from ropewalk.tools.models.source import Source, check_memory, load, quiet, read_source
from ropewalk.tools.models.text import read_tokens, start_tokens

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


def read_model(plan: LossPlan) -> Source:
    """Return the model's config. Raises ValueError if the folder has no model with weights."""
    source = read_source(plan.model, plan.trust_remote_code)
    if not source.has_weights:
        raise ValueError(
            f"--model must be a folder with weights (*.safetensors), got {shown_path(plan.model)}"
        )
    return source


def measure_files(
    plan: LossPlan,
    source: Source,
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
    tokens = read_tokens(source, plan.text, to, most)
    start = start_tokens(source)
    check_memory(source, plan.dtype, plan.device)
    watch("loading the model")
    model = load(source, plan.dtype, plan.device)
    rules = {name: _as_type_has_it(rule, source) for name, rule in rules.items()}
    with quiet():
        return measure_loss(
            model, tokens, rules, original=original, to=to, passages=plan.passages, start=start,
            seconds=plan.seconds, watch=watch,
        )  # fmt: skip


def _as_type_has_it(rule: Scaling, source: Source) -> Scaling:
    """Return a rule with the fields that the code of the model type sets."""
    conventions = CONVENTIONS.get(str(source.spec.model_type))
    if isinstance(rule, YaRN) and conventions is not None:
        return replace(rule, **conventions.yarn_fields)
    return rule
