"""From recorded queries or keys to matrices: what the rotation of one layer did, at each position.

Hidden states are the same at all positions, so that M(p) solves `applied(p) = M(p) · entered` for
all rows and heads together. What entered is what a function that rotates was given. If no such
function was met, position 0 stands for it: a factor of all positions is then invisible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.tools.verify.capture import Rotated

SAME = 1e-5  # relative, of float32 vectors that went through a norm
SPREAD = 1e-4  # of what is left when M(p) is fitted
SAMPLES = 1.5  # vectors for each unknown of a row of M(p)
ROUNDS = 30  # of the alternating fit of a norm's weights


@dataclass(frozen=True)
class Applied:
    """What happened to the vectors of one layer.

    matrices: float64 (P, D, D), output by input. factors: (P,), by which vectors are longer than at
    position 0, apart from the rotation. entered: whether what entered the rotation is known.
    linear: whether one matrix for each position explains all vectors. weighted: whether a norm with
    weights follows the rotation; matrices are those before it.
    """

    matrices: Tensor
    factors: Tensor
    entered: bool
    linear: bool
    weighted: bool = False


@dataclass(frozen=True)
class _Part:
    """A rotation that the applied vectors contain: from dimension `start` on, times factors."""

    start: int
    before: Tensor
    heads: int  # that are different from one another
    factors: Tensor  # (N, H, S)
    weights: Tensor | None = None


def rows_for(applied: Tensor, rotations: tuple[Rotated, ...]) -> int:
    """Return how many rows the fit of M(p) needs. applied: `(N, H, S, D)`."""
    needs = [_rows(applied.shape[-1], applied.shape[1])]
    for rotated in rotations:
        after = _arranged(rotated.after, applied)
        if after is not None:
            needs.append(_rows(after.shape[-1], after.shape[1]))
    return max(needs)


def _rows(size: int, heads: int) -> int:
    return math.ceil(SAMPLES * size / heads) + 1


def applied_matrices(applied: Tensor, rotations: tuple[Rotated, ...]) -> Applied:
    """Return what the rotation of one layer did. applied: `(N, H, S, D)`."""
    applied = applied.detach().cpu().to(torch.float32)
    parts = _find_parts(applied, rotations) or _find_weighted(applied, rotations)
    rows = max(_rows(applied.shape[-1], applied.shape[1]), *(_part_rows(p) for p in parts), 0)
    whole, applied = applied, applied[:rows].to(torch.float64)
    if parts:
        factors: Tensor | None = parts[0].factors[:rows]
    else:
        factors = _factors(applied, applied[:, :, :1].expand_as(applied))
    if factors is None:
        factors = torch.ones_like(applied[..., 0])
    applied = applied / factors[..., None]
    entered = applied[:, :, 0].clone()
    for part in parts:
        if part.weights is not None:
            applied = applied / part.weights
        inside = slice(part.start, part.start + part.before.shape[-1])
        before = part.before[:rows, :, 0].to(torch.float64)
        entered[..., inside] = before.repeat_interleave(whole.shape[1] // part.heads, 1)
    made, linear = _fit(applied, entered)
    relative = (factors / factors[:, :, :1]).mean((0, 1))
    weighted = any(part.weights is not None for part in parts)
    return Applied(made, relative.to(torch.float64), bool(parts), linear, weighted)


def _part_rows(part: _Part) -> int:
    return _rows(part.before.shape[-1], part.heads)


def _fit(applied: Tensor, entered: Tensor) -> tuple[Tensor, bool]:
    """Return M(p) (P, D, D) by least squares, and whether it explains every vector."""
    flat = entered.flatten(0, 1)
    at = applied.permute(2, 0, 1, 3).flatten(1, 2)
    if not torch.isfinite(at).all():
        return torch.full((len(at), at.shape[-1], at.shape[-1]), torch.nan, dtype=at.dtype), True
    made = torch.linalg.solve(flat.mT @ flat, flat.mT @ at)
    rest = (flat @ made - at).abs().amax() / flat.abs().amax()
    return made.mT, bool(rest < SPREAD)


def _find_parts(applied: Tensor, rotations: tuple[Rotated, ...]) -> list[_Part]:
    """Return which rotations the applied vectors contain, and where; each dimension once."""
    parts: list[_Part] = []
    free = torch.ones(applied.shape[-1], dtype=torch.bool)
    for rotated in rotations:
        before, after = (_arranged(x, applied) for x in (rotated.before, rotated.after))
        if before is None or after is None:
            continue
        width, heads = after.shape[-1], after.shape[1]
        after = after.repeat_interleave(applied.shape[1] // heads, 1)
        for start in range(applied.shape[-1] - width + 1):
            if not free[start : start + width].all():
                continue
            inside = applied[..., start : start + width]
            if _factors(inside[:2, :2, -2:], after[:2, :2, -2:]) is None:
                continue
            factors = _factors(inside, after)
            if factors is not None:
                parts.append(_Part(start, before, heads, factors))
                free[start : start + width] = False
                break
    return parts


def _find_weighted(applied: Tensor, rotations: tuple[Rotated, ...]) -> list[_Part]:
    """Return the rotation that a norm with weights follows, if there is one."""
    for rotated in rotations:
        before, after = (_arranged(x, applied) for x in (rotated.before, rotated.after))
        if before is None or after is None or after.shape != applied.shape:
            continue
        x, y = applied[:8].to(torch.float64), after[:8].to(torch.float64)
        weights = torch.ones(x.shape[-1], dtype=torch.float64)
        for _ in range(ROUNDS):  # x = factor · weight · y, with one factor for each vector
            scaled = weights * y
            factors = (x * scaled).sum(-1, keepdim=True) / scaled.square().sum(-1, keepdim=True)
            scaled = factors * y
            weights = (x * scaled).sum((0, 1, 2)) / scaled.square().sum((0, 1, 2))
        found = _factors(applied.to(torch.float64), after * weights)
        if found is not None and (weights != 0).all():
            return [_Part(0, before, after.shape[1], found, weights)]
    return []


def _arranged(x: Tensor, applied: Tensor) -> Tensor | None:
    """Return x as (N, H', S, R), H' a divisor of the applied vectors' heads, or None."""
    N, H, S, D = applied.shape
    x = x.detach().cpu().to(torch.float32)
    if x.ndim == 3 and x.shape[0] != N and x.shape[0] % N == 0:
        x = x.unflatten(0, (N, -1))
    elif x.ndim == 3:
        x = x.unsqueeze(1)
    if x.ndim != 4 or x.shape[-1] > D:
        return None
    if x.shape[2] != S and x.shape[1] == S:
        x = x.transpose(1, 2)
    fits = x.shape[0] == N and x.shape[2] == S and H % x.shape[1] == 0
    return x if fits else None


def _factors(x: Tensor, y: Tensor) -> Tensor | None:
    """Return factors (…) with x = factor · y, None if there are none or they are not positive."""
    factors = (x * y).sum(-1) / y.square().sum(-1)
    same = (x - factors[..., None] * y).abs().amax(-1) <= SAME * x.abs().amax(-1)
    return factors if same.all() and (factors > 0).all() else None
