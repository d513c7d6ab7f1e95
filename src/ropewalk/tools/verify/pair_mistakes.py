"""Pairs of dimensions that are mixed but not rotated: which mistake makes them so.

A rotation of the first and second dimension of a pair, (x, y), is (c·x - s·y, s·x + c·y). Each
mistake leaves a structure of its own in the measured blocks [[a, b], [c, d]], whatever theta is.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.tools.verify.measured_rotation import NEAR, Structure, allowed, residuals, slopes
from ropewalk.tools.verify.verify_report import Check, fault

CLOSE = 0.01  # of entries of blocks, relative to the largest; covers rounded tables
EXACT = 1e-3  # of speeds, relative; CLOSE would join different pairs


def name_mistake(structure: Structure, name: str, whose: str = "") -> Check | None:
    """Return which mistake made the blocks of a structure, or None if it is none of these.

    name: of the check. whose: words in front of what it says, as in "keys: ".
    """
    a, b, c, d = structure.blocks.flatten(-2).unbind(-1)
    named, says = "overwritten-half", _layouts(structure)
    if _same(c, -a * b) and _same(d, a - b * b):
        says = "the first dimension of each pair is overwritten before it is used for the second"
    elif _same(b, -c * d) and _same(a, d - c * c):
        says = "the second dimension of each pair is overwritten before it is used for the first"
    elif _same(a, d) and _same(b, c):
        forwards = (slopes(_of_row(structure, 1)) > 0).all()
        half = "no minus sign" if forwards else "a minus sign in both halves"
        named = "wrong-sign"
        says = f"both sines of a pair have the same sign, as if rotate_half had {half}"
    elif _same(a, -d) and _same(b, c):
        named = "wrong-sign"
        says = "pairs are mirrored, not rotated: their cosines have opposite signs"
    else:
        named = "layouts-mixed"
    if says is None:
        return None
    return fault(name, named, whose + says, mistake=says, error=structure.errors.max().item())


def _same(first: Tensor, second: Tensor) -> bool:
    return bool((first - second).abs().max() <= CLOSE * first.abs().max().clamp(min=1e-9))


def _layouts(structure: Structure) -> str | None:
    """Say whether the dimensions of a pair rotate by angles of two pairs, as tables lie otherwise.

    Dimension i then has the speed of its own entry in the tables, so speeds show how they repeat.
    """
    near, start = structure.positions <= NEAR, int(structure.writes.min())
    table = torch.zeros(int(structure.writes.max()) + 1 - start, dtype=torch.float64)
    for place in (0, 1):
        row = _of_row(structure, place)
        speed, sizes = slopes(row), row.amplitudes
        limit = allowed(structure.positions[near], speed) + CLOSE
        if (residuals(row, speed)[near] > limit).any() or not _same(sizes, sizes[:1]):
            return None
        table[structure.writes[:, place] - start] = speed
    distances, half = structure.writes.diff(dim=1), len(table) // 2
    for repeat, rotated, near_pairs, first, second in (
        ("in the other half", "neighbors (interleaved)", True, table[:half], table[half:]),
        ("for neighbors", "halves (half)", False, table[:-1:2], table[1::2]),
    ):
        pairs = (distances == distances[0]).all() and (distances[0] == 1) == near_pairs
        first = first[: len(second)]  # where slow pairs were not seen, they differ by one
        alike = (first - second[: len(first)]).abs() <= EXACT * first.abs() + 1e-8
        if pairs and half > 1 and alike.all():
            return f"cos and sin repeat {repeat}, but {rotated} are rotated together"
    return None


def _of_row(structure: Structure, row: int) -> Structure:
    """Return the rotations that have this row of the measured blocks."""
    x, y = structure.blocks[..., row, row], structure.blocks[..., row, 1 - row]
    y = y if row else -y
    blocks = torch.stack((torch.stack((x, -y), -1), torch.stack((y, x), -1)), -2)
    return replace(structure, blocks=blocks)
