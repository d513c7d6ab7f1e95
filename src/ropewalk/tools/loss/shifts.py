"""The same passages at shifted positions: with a relative rope their loss must not change.

A slope is an angle error or a broken rule. What rounding explains is measured, at offsets so small
that no way to compute angles is wrong there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.loss.facts import ShiftLoss, Shifts
from ropewalk.tools.loss.interval import difference
from ropewalk.tools.loss.passes import run_pass, spec_of
from ropewalk.tools.loss.windows import NEAR, far_offsets

TIMES = 4  # as large as the largest change nearby may a change be far away
LEAST_ROUNDING = 1e-5  # nats


def measure_shifts(model: nn.Module, passages: Sequence[Tensor], scored: int, to: int) -> Shifts:
    """Return the losses of passages (S,), all of the same length, with positions up to `to`."""
    spec = spec_of(model)
    if any(layer.query_temperature is not None for layer in spec.layers):
        return Shifts(not_compared="the model scales queries by their position")
    last = max(to, len(passages[0]) + max(NEAR))  # all offsets have one length
    length = last if needs_length(spec) else None
    offsets = (0, *NEAR, *far_offsets(to, len(passages[0])))
    found, spread = {}, 0.0
    for offset in offsets:
        runs = [run_pass(model, ids, scored, offset, length) for ids in passages]
        found[offset] = torch.stack([each.losses for each in runs])
        spread = max(spread, *(each.spread for each in runs))
    if not all(bool(losses.isfinite().all()) for losses in found.values()):
        return Shifts(not_compared="the loss is not a finite number")
    rows = tuple(_row(offset, losses, found[0]) for offset, losses in found.items())
    near = max(each.largest for each in rows if each.offset in NEAR)
    rounding = min(max(LEAST_ROUNDING, TIMES * near), _most_rounding(model, spread))
    flat = all(each.largest <= rounding for each in rows)
    return Shifts(rows, rounding, _slope(rows), flat)


def needs_length(spec: ModelSpec) -> bool:
    """Return whether a rope of the text depends on the length of the sequence."""
    return any(layer.rope is not None and layer.rope.needs_length for layer in spec.layers)


def _row(offset: int, losses: Tensor, unshifted: Tensor) -> ShiftLoss:
    change = difference(losses, unshifted)
    return ShiftLoss(offset, float(losses.mean()), change, float((losses - unshifted).abs().max()))


def _most_rounding(model: nn.Module, spread: float) -> float:
    """Return a bound of a loss's change by rounding: twice that of a logit in `bench --model`."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    return 2 * spread * max(1e-3, 64 * torch.finfo(dtype).eps)


def _slope(rows: Sequence[ShiftLoss]) -> float:
    """Return the least-squares slope of the mean change, per 1,000 positions."""
    x = torch.tensor([each.offset for each in rows], dtype=torch.float64)
    y = torch.tensor([each.change.mean for each in rows], dtype=torch.float64)
    x = x - x.mean()
    return float(1000 * (x @ (y - y.mean())) / (x @ x))
