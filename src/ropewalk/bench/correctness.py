"""Check that a contender computes the rotation that it is timed for, with its gradient.

The reference is a product of complex numbers in torch; it shares no code with ropewalk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.bench.contenders import Rotation
from ropewalk.bench.workloads import GRADIENT, IN_PLACE, THETA, Case


def allowed(dtype: torch.dtype) -> float:
    """Return the worst error that still counts as the same rotation, relative to a pair's length.

    Angles in float32 are off by up to 2.4e-4 at position 4,096. A table in q's dtype, two products
    and a sum, each rounded, add up to four units of that dtype.
    """
    return 1e-3 + 4 * torch.finfo(dtype).eps


def worst_error(rotation: Rotation, case: Case) -> float:
    """Return the largest error of all pairs of q and k, or of gradients; inf if shapes differ.

    Raises ValueError if a rotation into new memory also writes into its arguments.
    """
    was = case.tensors(rotation.seq_dim)
    q, k = (x.clone() for x in was)
    if case.form == IN_PLACE:  # the result is in q and k
        rotation.rotate(q, k)
        return _worst((q, k), was, rotation, case)
    if case.form != GRADIENT:
        worst = _worst(rotation.rotate(q, k), was, rotation, case)
    else:
        upstream = case.tensors(rotation.seq_dim, seed=1)
        rotated, gradients = forward_backward(rotation, q, k, upstream)
        worst = max(
            _worst(rotated, was, rotation, case),
            _worst(gradients, upstream, rotation, case, sign=-1),
        )
    if not all(torch.equal(x, before) for x, before in zip((q, k), was, strict=True)):
        raise ValueError("writes into q or k")
    return worst


def forward_backward(
    rotation: Rotation, q: Tensor, k: Tensor, upstream: tuple[Tensor, Tensor]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
    """Return the rotation and the gradient of sum(rotated * upstream), without that sum."""
    leaves = q.detach().requires_grad_(), k.detach().requires_grad_()
    with torch.enable_grad():
        rotated = rotation.rotate(*leaves)
        return rotated, torch.autograd.grad(rotated, leaves, upstream)


def _worst(
    found: Sequence[Tensor], was: Sequence[Tensor], rotation: Rotation, case: Case, sign: int = 1
) -> float:
    return max(_error(y, x, rotation, case, sign) for y, x in zip(found, was, strict=True))


def _error(found: Tensor, x: Tensor, rotation: Rotation, case: Case, sign: int) -> float:
    if found.shape != x.shape or found.dtype != x.dtype:
        return float("inf")
    exponents = (
        torch.arange(0, case.workload.head_dim, 2, dtype=torch.float64) / case.workload.head_dim
    )
    angles = sign * case.workload.positions().double()[:, None] * THETA**-exponents
    rotated = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    if rotation.seq_dim == -3:
        rotated = rotated[:, None]
    before, after = _pairs(x, rotation), _pairs(found, rotation)
    length = before.abs().clamp_min(torch.finfo(torch.float32).tiny)
    worst = float(((after - before * rotated).abs() / length).max())
    return float("inf") if math.isnan(worst) else worst


def _pairs(x: Tensor, rotation: Rotation) -> Tensor:
    """Return each pair as one complex number."""
    x = x.detach().cpu().float()
    if rotation.pairing == "half":
        return torch.complex(*x.chunk(2, dim=-1))
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
