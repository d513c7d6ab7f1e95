"""What a target does to vectors, as matrices: which dimensions rotate together, and by how much.

A target that acts on each position alone is one matrix M(p) per position. In a rope, rows of M(p)
have one entry (dimensions that do not rotate) or two (pairs), and each pair's block is

    [[cos, -sin], [sin, cos]] · amplitude

of an angle that is proportional to p. Everything is read from the matrices, nothing from tables.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.tools.verify.call_form import Role, Target, TargetError

UNSEEN = 1e-5  # an entry of a matrix below this counts as 0: the pair is too slow to be seen
NEAR = 4_096  # positions below which float32 angles are off by less than 1e-3
SAME = 1e-4  # of amplitudes, blocks and near angles


@dataclass(frozen=True)
class Structure:
    """Pairs of a rope, and its blocks at the measured positions.

    reads, writes: (R/2, 2), the dimensions of each pair in the input and in the output; pairs are
    sorted by the first dimension that is written. blocks: (P, R/2, 2, 2) at `positions`, output by
    input. still: (D,), the factor of each dimension that was not seen to rotate, else 1.
    """

    head_dim: int
    reads: Tensor
    writes: Tensor
    positions: Tensor
    blocks: Tensor
    still: Tensor

    def pairs_as(self, other: Structure) -> bool:
        """Return whether the same dimensions rotate together as in another structure."""
        return torch.equal(self.reads, other.reads) and torch.equal(self.writes, other.writes)

    def upto(self, row: int) -> Structure:
        """Return the structure at its first positions."""
        return replace(self, positions=self.positions[:row], blocks=self.blocks[:row])

    @property
    def near(self) -> Structure:
        """The structure at near positions."""
        return self.upto(int((self.positions <= NEAR).sum()))

    @property
    def angles(self) -> Tensor:
        """The angle of each pair (P, R/2), between -π and π."""
        b = self.blocks
        return torch.atan2(b[..., 1, 0] - b[..., 0, 1], b[..., 0, 0] + b[..., 1, 1])

    @property
    def amplitudes(self) -> Tensor:
        """The factor of the length of each pair (P, R/2)."""
        return self.blocks.square().sum((-1, -2)).div(2).sqrt()

    @property
    def errors(self) -> Tensor:
        """How far each block is from a rotation times a factor (P, R/2), relative to its size."""
        a, b, c, d = self.blocks.flatten(-2).unbind(-1)
        size = self.amplitudes.clamp(min=1e-9)
        return torch.maximum((a - d).abs(), (b + c).abs()) / size


def pairs_of(near: Tensor, positions: Tensor) -> Structure | None:
    """Return the structure of matrices (P, D, D), or None if dimensions do not rotate in pairs.

    near: matrices at different positions, 0 among them if the order in which pairs are written
    differs from the one in which they are read.
    """
    dim = near.shape[-1]
    coupled = (near.abs() > UNSEEN).any(0)  # output by input
    factors = near.diagonal(dim1=-2, dim2=-1)
    alone = coupled.diagonal() & (coupled.sum(0) == 1) & (coupled.sum(1) == 1)
    fixed = alone & ((factors - factors[:1]).abs() <= UNSEEN).all(0)
    rows: dict[tuple[int, ...], list[int]] = {}
    for row in (~fixed).nonzero().flatten().tolist():
        rows.setdefault(tuple(coupled[row].nonzero().flatten().tolist()), []).append(row)
    pairs = sorted((outputs, list(columns)) for columns, outputs in _merge_halves(rows).items())
    if any(len(columns) != 2 or len(outputs) != 2 for outputs, columns in pairs):
        return None
    writes, reads = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2, 2).unbind(1)
    blocks = near[:, writes[:, :, None], reads[:, None, :]]
    still = torch.where(fixed, factors[0], 1.0)
    made = Structure(dim, reads, writes, positions, blocks, still)
    # A slow pair, or one of frequency 0, is multiplied by the amplitude all the same.
    size = made.amplitudes[0].median() if len(pairs) else torch.ones(())
    known = ((still - 1).abs() <= SAME) | ((still - size).abs() <= SAME)
    return made if known.all() else None


def _merge_halves(rows: dict[tuple[int, ...], list[int]]) -> dict[tuple[int, ...], list[int]]:
    """Join rows that have one entry, because their sine was below the tolerance, to pairs.

    A slow pair at near positions looks as if its dimensions were scaled alone; it stays unknown
    unless two such rows exchange their columns.
    """
    joined: dict[tuple[int, ...], list[int]] = {}
    for columns, outputs in sorted(rows.items(), key=lambda row: len(row[0]) == 1):
        inside = [pair for pair in joined if columns[0] in pair] if len(columns) == 1 else []
        if len(inside) == 1 and len(joined[inside[0]]) < 2:
            joined[inside[0]] = sorted({*joined[inside[0]], *outputs})
        else:
            joined[columns] = outputs
    return joined


def table_end(structure: Structure) -> int | None:
    """Return the row from which on rotations repeat or vanish, None if they never do.

    The last row of a table that is too short serves all later positions, or zeros do.
    """
    blocks, sizes = structure.blocks, structure.amplitudes.amin(-1)
    end = len(blocks)
    while end > 1 and (blocks[end - 1] - blocks[-1]).abs().max() < 1e-6:
        end -= 1
    falls = sizes[-1] < 1e-6 and sizes[end - 1] < 0.5 * sizes[0]  # with the position
    return None if len(blocks) - end < 2 or falls else end


def slopes(structure: Structure) -> Tensor:
    """Return each pair's radians per position, float64 (R/2,), from positions 0, 1, 2, 4 and so on.

    The angle at position 1 fixes the number of turns at 2, that one the number at 4, and so on. It
    stops at a position where a pair departs from its line by a tenth of a radian.
    """
    moved = structure.angles - structure.angles[:1]
    index = {int(p): row for row, p in enumerate(structure.positions)}
    frequencies = wrapped(moved[index[1]])
    going = torch.ones_like(frequencies, dtype=torch.bool)
    p = 2
    while p in index:
        residual = wrapped(moved[index[p]] - frequencies * p)
        going &= residual.abs() < 0.1
        frequencies = torch.where(going, frequencies + residual / p, frequencies)
        p *= 2
    return frequencies


def residuals(structure: Structure, frequencies: Tensor) -> Tensor:
    """Return how far angles are from lines of these slopes (P, R/2), in radians."""
    expected = structure.positions.to(torch.float64)[:, None] * frequencies
    return wrapped(structure.angles - structure.angles[:1] - expected).abs()


def allowed(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Return how far float32 angles may be off, in radians (P, R/2).

    The frequency and the product are each rounded by up to 2^-24 of the angle.
    """
    angles = positions.to(torch.float64)[:, None] * frequencies.abs()
    return SAME + 4 * angles * 2.0**-23


def rounded_tables(structure: Structure) -> torch.dtype | None:
    """Return the dtype that cos and sin were rounded to, None if they have more digits.

    They are numbers of that dtype, with or without the amplitude. Among 16 numbers of float32 that
    are not near 0 or 1, some are not.
    """
    numbers = structure.blocks[..., 0].flatten(1)
    for made in (numbers, numbers / structure.amplitudes[0].repeat_interleave(2)):
        telling = ((made.abs() > 0.25) & (made.abs() < 0.99)).sum() >= 16
        for dtype in (torch.bfloat16, torch.float16):
            if telling and ((made - made.to(dtype)).abs() <= 1e-5).all():
                return dtype
    return None


def roundoff(structure: Structure) -> float:
    """Return by how many radians rounded tables move angles, 0 if they are not rounded."""
    dtype = rounded_tables(structure)
    return 0.0 if dtype is None else torch.finfo(dtype).eps / 2


def wrapped(angles: Tensor) -> Tensor:
    """Return angles between -π and π."""
    return torch.remainder(angles + math.pi, 2 * math.pi) - math.pi


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
    if target.takes == "positions":
        return target.rotate_all(x.expand(-1, -1, len(positions), -1), positions)
    count = int(positions.max()) + 1
    if count * x.shape[0] * x.shape[-1] <= MOST_NUMBERS or target.takes == "nothing":
        rotated = target.rotate_all(x.expand(-1, -1, count, -1), torch.arange(count))
        return {role: y[:, :, positions] for role, y in rotated.items()}
    parts: list[dict[Role, Tensor]] = []
    for position in positions.tolist():  # in calls of two tokens: one alone may have a fault
        start = max(position - 1, 0)
        rotated = target.rotate_all(x.expand(-1, -1, 2, -1), torch.arange(start, start + 2))
        parts.append({role: y[:, :, [position - start]] for role, y in rotated.items()})
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


def served_matrices(target: Target, positions: Tensor) -> dict[Role, Tensor]:
    """Return matrices at these positions, or at fewer if far ones are refused."""
    for most in (int(positions.max()) + 1, 4_096, 1_024, 256):
        with suppress(TargetError):
            return matrices(target.fresh(), positions[positions < most])
    return matrices(target.fresh(), positions[positions < 32])


def at_far(
    target: Target, structure: Structure, positions: Tensor, role: Role | None = None
) -> Structure:
    """Return a structure at far positions, of q or of a role, from two vectors.

    One has a 1 in the first dimension of each pair, the other in the second.
    """
    probes = torch.zeros(2, 1, 1, target.head_dim)
    for which in (0, 1):
        probes[which, 0, 0, structure.reads[:, which]] = 1
    rotated = rows_at(target.fresh(), probes, positions)[role or target.rotates[0]][:, 0]
    blocks = rotated.to(torch.float64)[:, :, structure.writes].permute(1, 2, 3, 0)
    return replace(structure, positions=positions, blocks=blocks)
