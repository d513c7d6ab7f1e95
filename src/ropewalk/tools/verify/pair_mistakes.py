"""Pairs of dimensions that are mixed but not rotated: which mistake makes them so.

A rotation of the first and second dimension of a pair, (x, y), is (c·x - s·y, s·x + c·y). Each
mistake leaves a structure of its own in the measured blocks [[a, b], [c, d]], whatever theta is.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.tools.verify.measured_rotation import (
    NEAR,
    SAME,
    Structure,
    allowed,
    residuals,
    slopes,
)
from ropewalk.tools.verify.verify_report import Check, fault

CLOSE = 0.01  # of entries of blocks and of speeds, relative to their size; covers rounded tables


def name_mistake(structure: Structure, name: str, whose: str = "") -> Check | None:
    """Return which mistake made the blocks of a structure, or None if it is none of these.

    name: of the check. whose: words in front of what it says, as in "keys: ".
    """
    error = structure.errors.max().item()
    for made in (_overwritten, _one_sign, _mirrored, _layouts):
        if (found := made(structure)) is not None:
            named, says = found
            return fault(name, named, whose + says, mistake=says, error=error)
    return None


Found = tuple[str, str]  # the fault, and what it is in words


def _same(first: Tensor, second: Tensor) -> bool:
    size = max(first.abs().max().item(), 1e-9)
    return bool((first - second).abs().max() <= CLOSE * size)


def _overwritten(structure: Structure) -> Found | None:
    """One result is made of the other instead of the input: s·(c·x - s·y) + c·y is the second."""
    a, b, c, d = structure.blocks.flatten(-2).unbind(-1)
    if _same(c, -a * b) and _same(d, a - b * b):
        order = ("first", "second")
    elif _same(b, -c * d) and _same(a, d - c * c):
        order = ("second", "first")
    else:
        return None
    says = (
        f"the {order[0]} dimension of each pair is overwritten before it is used for the "
        f"{order[1]}; copy both before the first is written"
    )
    return "overwritten-half", says


def _one_sign(structure: Structure) -> Found | None:
    """Both sines of a pair have one sign: (c·x + s·y, s·x + c·y)."""
    a, b, c, d = structure.blocks.flatten(-2).unbind(-1)
    if not (_same(a, d) and _same(b, c)):
        return None
    forwards = (slopes(_of_row(structure, 1)) > 0).all()
    half = "no minus sign" if forwards else "a minus sign in both halves"
    says = f"both sines of a pair have the same sign, as if rotate_half had {half}"
    return "wrong-sign", says


def _mirrored(structure: Structure) -> Found | None:
    """Both cosines have opposite signs, both sines the same: (c·x + s·y, s·x - c·y)."""
    a, b, c, d = structure.blocks.flatten(-2).unbind(-1)
    if not (_same(a, -d) and _same(b, c)):
        return None
    return "wrong-sign", "pairs are mirrored, not rotated: their cosines have opposite signs"


def _layouts(structure: Structure) -> Found | None:
    """The two dimensions of a pair rotate by angles of different pairs, as tables lie otherwise."""
    first, second = (_of_row(structure, row) for row in (0, 1))
    near = structure.positions <= NEAR
    speeds = []
    for row in (first, second):
        speed, sizes = slopes(row), row.amplitudes
        limit = allowed(structure.positions[near], speed) + CLOSE
        if (residuals(row, speed)[near] > limit).any() or not _same(sizes, sizes[:1]):
            return None
        speeds.append(speed)
    start = int(structure.writes.min())
    table = torch.zeros(int(structure.writes.max()) + 1 - start, dtype=torch.float64)
    for column, speed in enumerate(speeds):
        table[structure.writes[:, column] - start] = speed
    apart = structure.writes[:, 1] - structure.writes[:, 0]
    half = len(table) // 2
    if (apart == 1).all() and half > 1 and _alike(table[:half], table[half : 2 * half]):
        tables, rotated = "once after the other (half)", "neighbors (interleaved)"
    elif (apart == apart[0]).all() and apart[0] > 1 and _alike(table[:-1:2], table[1::2]):
        tables, rotated = "for neighbors (interleaved)", "halves (half)"
    else:
        return None
    says = f"cos and sin repeat {tables}, but {rotated} are rotated together"
    return "layouts-mixed", says


def _alike(first: Tensor, second: Tensor) -> bool:
    """Return whether speeds are the same within float32; CLOSE would join different pairs."""
    n = min(len(first), len(second))
    return bool(((first[:n] - second[:n]).abs() <= 10 * SAME * first[:n].abs() + 1e-8).all())


def _of_row(structure: Structure, row: int) -> Structure:
    """Return the rotations that have this row of the measured blocks."""
    x, y = structure.blocks[..., row, row], structure.blocks[..., row, 1 - row]
    y = y if row else -y
    blocks = torch.stack((torch.stack((x, -y), -1), torch.stack((y, x), -1)), -2)
    return replace(structure, blocks=blocks)
