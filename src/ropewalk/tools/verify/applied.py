"""From recorded queries or keys to matrices: what the rotation of one layer did, at each position.

Hidden states are the same at all positions, so that M(p) solves `applied(p) = M(p) · entered` for
all rows and heads together. What entered is what a function that rotates was given. If no such
function was met, position 0 stands for it: a factor of all positions is then invisible.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.tools.verify.capture import Rotated

SAME = 1e-5  # relative, of float32 vectors that went through a norm
SPREAD = 1e-4  # of what is left when M(p) is fitted


@dataclass(frozen=True)
class Applied:
    """What happened to the vectors of one layer.

    matrices: float64 (P, D, D), output by input. factors: (P,), by which vectors are longer than at
    position 0 after the rotation, or None if they differ from vector to vector. entered: whether
    what entered the rotation is known. linear: whether one matrix for each position explains all
    vectors. rotated: whether the vectors went through a function that rotates.
    """

    matrices: Tensor
    factors: Tensor
    entered: bool
    linear: bool
    rotated: bool


@dataclass
class _Part:
    """Where the output of a rotation is in the applied vectors, which may be longer by a factor."""

    start: int
    before: Tensor
    after: Tensor
    factor: Tensor  # (N, H, S)


def applied_matrices(applied: Tensor, rotations: tuple[Rotated, ...]) -> Applied:
    """Return what the rotation of one layer did. applied: `(N, H, S, D)`."""
    applied = applied.detach().to("cpu", torch.float64)
    parts = _find_parts(applied, rotations)
    factors = torch.ones_like(applied[..., 0])
    if parts:
        factors = parts[0].factor
    else:
        unrotated = _factor(applied, applied[:, :, :1].expand_as(applied))
        if unrotated is not None:
            factors = unrotated
    applied = applied / factors[..., None]
    entered = applied[:, :, 0].clone()
    for part in parts:
        entered[..., part.start : part.start + part.before.shape[-1]] = part.before[:, :, 0]
    made, linear = _fit(applied, entered)
    relative = factors / factors[:, :, :1]
    return Applied(made, relative.mean((0, 1)), bool(parts), linear, bool(parts))


def _fit(applied: Tensor, entered: Tensor) -> tuple[Tensor, bool]:
    """Return M(p) (P, D, D) by least squares, and whether it explains every vector."""
    flat = entered.flatten(0, 1)
    at = applied.permute(2, 0, 1, 3).flatten(1, 2)
    if not torch.isfinite(at).all():
        return torch.full((len(at), at.shape[-1], at.shape[-1]), torch.nan, dtype=at.dtype), True
    made = torch.linalg.pinv(flat) @ at
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
        width = after.shape[-1]
        for start in range(applied.shape[-1] - width + 1):
            if not free[start : start + width].all():
                continue
            inside = applied[..., start : start + width]
            factor = _factor(inside[:2, :, :2], after[:2, :, :2])
            if factor is not None:
                factor = _factor(inside, after)
            if factor is not None:
                parts.append(_Part(start, before, after, factor))
                free[start : start + width] = False
                break
    return parts


def _arranged(x: Tensor, applied: Tensor) -> Tensor | None:
    """Return x as (N, H, S, R) with the heads of the applied vectors, None if it cannot be."""
    N, H, S, D = applied.shape
    x = x.detach().to("cpu", torch.float64)
    if x.ndim == 3 and x.shape[0] != N and x.shape[0] % N == 0:
        x = x.unflatten(0, (N, -1))
    elif x.ndim == 3:
        x = x.unsqueeze(1)
    if x.ndim != 4 or x.shape[-1] > D:
        return None
    if x.shape[2] != S and x.shape[1] == S:
        x = x.transpose(1, 2)
    if x.shape[0] != N or x.shape[2] != S or H % x.shape[1]:
        return None
    return x.repeat_interleave(H // x.shape[1], 1)


def _factor(x: Tensor, y: Tensor) -> Tensor | None:
    """Return the factor (…) with x = factor · y, None if there is none or it is not positive."""
    factor = (x * y).sum(-1) / y.square().sum(-1)
    size = x.abs().amax(-1)
    same = ((x - factor[..., None] * y).abs().amax(-1) <= SAME * size).all()
    return factor if same and (factor > 0).all() else None
