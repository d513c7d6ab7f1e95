"""The limit of a rotation: copying, which moves the same bytes and computes nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.bench.timing import Run
from ropewalk.bench.workloads import GRADIENT, IN_PLACE, Case

COPIES = {IN_PLACE: "copy_ into existing memory", GRADIENT: "clone, both ways"}


def copying(case: Case) -> Run:
    """Return a call that copies the q and k of this case, and their gradients if it has them."""
    tensors: list[Tensor] = list(case.tensors(-2))
    if case.form == IN_PLACE:
        pairs = [(torch.empty_like(x).copy_(x), x) for x in tensors]  # pages touched once
        return lambda: [there.copy_(x) for there, x in pairs]
    if case.form == GRADIENT:
        tensors += case.tensors(-2, seed=1)
    return lambda: [x.clone() for x in tensors]
