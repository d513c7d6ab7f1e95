"""From recorded queries or keys to matrices: what the rotation of one layer did, at each position.

Hidden states are the same at all positions, so that M(p) solves `applied(p) = M(p) · entered` for
all rows and heads together. What entered is what a function that rotates was given. If no such
function was met, position 0 stands for it: a factor of all positions is then invisible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.tools.verify.capture_attention import Rotated

SAME = 1e-5  # relative, of float32 vectors that went through a norm
SPREAD = 1e-4  # of what is left when M(p) is fitted
WORST = 100  # condition number of the vectors that enter; random ones have about 10
MOST_SIZE = 1_024  # of a head
SAMPLES = 1.5  # vectors for each unknown of a row of M(p)


@dataclass(frozen=True)
class Applied:
    """What happened to the vectors of one layer.

    matrices: float64 (P, D, D), output by input. factors: (P,), by which vectors are longer than at
    position 0, apart from the rotation, or None if they are part of the matrices.
    entered: whether what entered the rotation is known. linear: whether one matrix for each
    position explains all vectors. scale: if what entered is not known, how much longer vectors are
    at position 0 than where they were projected, or None.
    """

    matrices: Tensor
    factors: Tensor | None
    entered: bool
    linear: bool
    scale: float | None = None


@dataclass(frozen=True)
class _Part:
    """A rotation that the applied vectors contain: from dimension `start` on, times factors."""

    start: int
    before: Tensor  # (N, H', S, R), whose heads are repeated in the applied vectors
    tiled: bool  # 0, 1, 0, 1 and not 0, 0, 1, 1
    factors: Tensor  # (N, H, S)


def rows_for(applied: Tensor, rotations: tuple[Rotated, ...]) -> int:
    """Return how many rows the fit of M(p) needs. applied: `(N, H, S, D)`."""
    after = [_heads_first(rotated.after, applied.shape[2]) for rotated in rotations]
    heads = [x for x in after if x.ndim == 4 and x.shape[-1] <= MOST_SIZE]
    return max(_rows(x) for x in (applied, *heads))


def _rows(x: Tensor) -> int:
    """Return how many rows of vectors (N, H, S, D) the fit needs."""
    return math.ceil(SAMPLES * x.shape[-1] / x.shape[1]) + 1


def applied_matrices(
    applied: Tensor, rotations: tuple[Rotated, ...], projections: tuple[Tensor, ...] = ()
) -> Applied:
    """Return what the rotation of one layer did. applied: `(N, H, S, D)`."""
    applied = applied.detach().cpu().to(torch.float32)
    parts = _find_parts(applied, rotations)
    rows = max(_rows(x) for x in (applied, *(part.before for part in parts)))
    applied = applied[:rows].to(torch.float64)
    still = applied[:, :, :1].expand_as(applied)
    factors = parts[0].factors[:rows] if parts else _factors(applied, still)
    if factors is not None:
        applied = applied / factors[..., None]
    entered = applied[:, :, 0].clone()
    for part in parts:
        inside = slice(part.start, part.start + part.before.shape[-1])
        before = part.before[:rows, :, 0].to(torch.float64)
        entered[..., inside] = _repeated(before, applied.shape[1], part.tiled)
    made, linear = _fit(applied, entered)
    if factors is not None:
        factors = (factors / factors[:, :, :1]).mean((0, 1)).to(torch.float64)
    scale = None if parts else _scale(applied[:, :, 0], projections)
    return Applied(made, factors, bool(parts), linear, scale)


def leftovers(rotations: tuple[Rotated, ...], *attended: Tensor) -> Iterator[Applied]:
    """Yield what rotations did that are in none of the attended vectors: those of an indexer."""
    for rotated in rotations:
        if not any(_find_parts(x.detach().cpu().to(torch.float32), (rotated,)) for x in attended):
            after = _heads_first(rotated.after, attended[0].shape[2])
            if after.ndim == 4 and after.shape[2] == attended[0].shape[2]:
                yield applied_matrices(after, (rotated,))


def _heads_first(x: Tensor, length: int) -> Tensor:
    """Return (N, H, S, R) for (N, S, H, R) and (N, S, R)."""
    if x.ndim == 3:
        return x.unsqueeze(1)
    return x.transpose(1, 2) if x.shape[2] != length and x.shape[1] == length else x


def _scale(first: Tensor, projections: tuple[Tensor, ...]) -> float | None:
    """Return the factor between the vectors (N, H, D) at position 0 and a projection's output."""
    N, _H, D = first.shape
    for projected in projections:
        if projected.shape[-1] % D or len(projected) < N:
            continue
        heads = projected[:N].detach().cpu().to(torch.float64).unflatten(-1, (-1, D))
        factors = (_factors(first[:, 0], head) for head in heads.unbind(1))
        scale = next((x for x in factors if x is not None), None)
        if scale is not None and scale.std() <= SAME * scale.mean():
            return scale.mean().item()
    return None


def _fit(applied: Tensor, entered: Tensor) -> tuple[Tensor, bool]:
    """Return M(p) (P, D, D) by least squares, and whether it explains every vector."""
    flat = entered.flatten(0, 1)
    at = applied.permute(2, 0, 1, 3).flatten(1, 2)
    unknown = torch.full((len(at), at.shape[-1], at.shape[-1]), torch.nan, dtype=at.dtype)
    if not torch.isfinite(at).all():
        return unknown, True
    squares = flat.mT @ flat
    sizes = torch.linalg.eigvalsh(squares)
    if sizes[0] * WORST**2 <= sizes[-1]:
        return unknown, False
    made = torch.linalg.solve(squares, flat.mT @ at)
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
        part = _find_part(applied, free, before, after)
        if part is not None:
            parts.append(part)
            free[part.start : part.start + after.shape[-1]] = False
    return parts


def _find_part(applied: Tensor, free: Tensor, before: Tensor, after: Tensor) -> _Part | None:
    width = after.shape[-1]
    for tiled in (False, True):
        repeated = _repeated(after, applied.shape[1], tiled)
        for start in range(applied.shape[-1] - width + 1):
            inside = applied[..., start : start + width]
            # Two rows and columns of each are compared first, which is quick.
            if not free[start : start + width].all():
                continue
            if _factors(inside[:2, :, -2:], repeated[:2, :, -2:]) is None:
                continue
            if (factors := _factors(inside, repeated)) is not None:
                return _Part(start, before, tiled, factors)
    return None


def _repeated(x: Tensor, heads: int, tiled: bool) -> Tensor:
    """Return x (N, H', …) with its heads repeated to H, as grouped attention does."""
    times = heads // x.shape[1]
    return torch.cat([x] * times, 1) if tiled else x.repeat_interleave(times, 1)


def _arranged(x: Tensor, applied: Tensor) -> Tensor | None:
    """Return x as (N, H', S, R), H' a divisor of the applied vectors' heads, or None."""
    N, H, S, D = applied.shape
    x = x.detach().cpu().to(torch.float32)
    if x.ndim == 3 and x.shape[0] != N and x.shape[0] % N == 0:
        x = x.unflatten(0, (N, -1))
    x = _heads_first(x, S)
    fits = x.ndim == 4 and x.shape[-1] <= D and (len(x), x.shape[2]) == (N, S)
    return x if fits and H % x.shape[1] == 0 else None


def _factors(x: Tensor, y: Tensor) -> Tensor | None:
    """Return factors (…) with x = factor · y, None if there are none or they are not positive."""
    factors = (x * y).sum(-1) / y.square().sum(-1)
    same = (x - factors[..., None] * y).abs().amax(-1) <= SAME * x.abs().amax(-1)
    return factors if same.all() and (factors > 0).all() else None
