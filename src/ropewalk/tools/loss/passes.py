"""One forward pass, and the losses of its last tokens."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.live_model import preserved


class Scored(NamedTuple):
    """Losses of the scored tokens (T,), in nats; the mean standard deviation of logits."""

    losses: Tensor
    spread: float


def run_pass(
    model: nn.Module,
    ids: Tensor,
    scored: int,
    offset: int | None = None,
    length: int | None = None,
) -> Scored:
    """Return the losses of the last tokens of ids (S,).

    offset: the position of the first token; None for the positions that the model's code takes
        itself, from 0 on.
    length: let a rule that depends on the length use this one: a second sequence in the batch ends
        there, because such a rule takes the length of the longest sequence.
    """
    given: dict[str, Any] = {"input_ids": ids[None], "use_cache": False}
    if offset is not None:
        starts = [offset] if length is None else [offset, length - len(ids)]
        steps = torch.arange(len(ids), device=ids.device)
        given["position_ids"] = torch.stack([start + steps for start in starts])
        given["input_ids"] = ids.expand(len(starts), -1)
    if keeps_logits(model):
        given["logits_to_keep"] = scored + 1
    with preserved(model), torch.no_grad():
        logits = model(**given).logits[0, -scored - 1 : -1].float()
    losses = F.cross_entropy(logits, ids[-scored:], reduction="none")
    return Scored(losses.cpu().double(), float(logits.std(dim=-1).mean()))


def keeps_logits(model: nn.Module) -> bool:
    """Return whether the model's code can compute the logits of the last tokens only."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def spec_of(model: nn.Module) -> ModelSpec:
    """Return the ropes that a model's config describes, with the rule of a patch."""
    config: Any = model.config
    return ModelSpec.from_config(config)
