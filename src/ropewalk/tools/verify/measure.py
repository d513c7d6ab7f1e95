"""Matrices and pairs of a target at chosen positions, whatever way positions reach it."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.tools.verify.roles import Role
from ropewalk.tools.verify.structure import Structure
from ropewalk.tools.verify.target import Target

BATCH = 32  # basis vectors in one call
MOST_NUMBERS = 2**24  # in one input of a target without positions: 64 MiB

#: Powers of two for slopes; others, because bfloat16 holds powers of two exactly.
POSITIONS = tuple(
    sorted({*range(32), *(2**k for k in range(5, 17)), 37, 101, 259, 515, 1_001, 3_333, 4_095})
)


def near_positions(target: Target, most: int) -> Tensor:
    """Return the positions to measure, below `most` and below what one call may hold."""
    if target.takes != "positions":
        most = min(most, MOST_NUMBERS // (BATCH * target.head_dim))
    return torch.tensor([p for p in POSITIONS if p < most])


def rows_at(target: Target, x: Tensor, positions: Tensor) -> dict[Role, Tensor]:
    """Return what the target makes of x `(B, 1, 1, D)` at each position: `(B, 1, S, D)`.

    Without positions, rows are picked from one call of contiguous positions; with an offset, far
    positions are called one at a time.
    """
    vectors = x.expand(-1, -1, len(positions), -1)
    if target.takes == "positions":
        return target.rotate_all(dict.fromkeys(target.rotates, vectors), positions)
    last = int(positions.max())
    count = last + 1
    if count * x.shape[0] * x.shape[-1] <= MOST_NUMBERS or target.takes == "nothing":
        long = x.expand(-1, -1, count, -1)
        rotated = target.rotate_all(dict.fromkeys(target.rotates, long), torch.arange(count))
        return {role: y[:, :, positions] for role, y in rotated.items()}
    parts = [target.rotate_all(dict.fromkeys(target.rotates, x), p.view(1)) for p in positions]
    return {role: torch.cat([part[role] for part in parts], -2) for role in parts[0]}


def matrices(target: Target, positions: Tensor) -> dict[Role, Tensor]:
    """Return M(p) at positions `(P,)` by role: float64 `(P, D, D)`, output by input."""
    dim = target.head_dim
    basis = torch.eye(dim).view(dim, 1, 1, dim)
    parts = [rows_at(target, part, positions) for part in basis.split(BATCH)]
    return {
        role: torch.cat([part[role][:, 0] for part in parts]).to(torch.float64).permute(1, 2, 0)
        for role in parts[0]
    }


def far_blocks(
    target: Target, structure: Structure, positions: Tensor, role: Role | None = None
) -> Tensor:
    """Return the pairs' blocks (P, R/2, 2, 2) of q, or of a role, at far positions, by two vectors.

    One has a 1 in the first dimension of each pair, the other in the second.
    """
    probes = torch.zeros(2, 1, 1, target.head_dim)
    for which in (0, 1):
        probes[which, 0, 0, structure.reads[:, which]] = 1
    rotated = rows_at(target, probes, positions)[role or target.rotates[0]][:, 0]
    return rotated.to(torch.float64)[:, :, structure.writes].permute(1, 2, 3, 0)
