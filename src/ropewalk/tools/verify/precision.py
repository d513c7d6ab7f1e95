"""How far angles are off at far positions, and with vectors in bfloat16."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.behavior import SAME, SHORT, far, random
from ropewalk.tools.verify.compare import exact_angles, signs, speeds
from ropewalk.tools.verify.describe import allowed
from ropewalk.tools.verify.hypotheses import half_precision_angles
from ropewalk.tools.verify.measure import MOST_NUMBERS, far_blocks
from ropewalk.tools.verify.results import Check, fault, not_tested, remark, right
from ropewalk.tools.verify.structure import Structure, wrapped
from ropewalk.tools.verify.target import Target, TargetError

FAR = (4_096, 131_072, 1_048_576)


def check_end(target: Target, structure: Structure, row: int, serves: int | None) -> Check:
    """Say where a table ends: from which position on rotations repeat, or vectors vanish.

    row: the first measured row that repeats the last one. serves: how many positions the model
    promises, or None.
    """
    name = "end of the table"
    low, high = int(structure.positions[row - 1]), int(structure.positions[row])
    window = torch.arange(low, high + 1)
    try:
        blocks = far_blocks(target.fresh(), structure, window)
    except TargetError as error:
        return fault(name, "fails", str(error))
    same = (blocks - blocks[-1]).abs().amax((1, 2, 3)) < 1e-6
    first = low + int(same.to(torch.int8).argmax())
    if blocks[-1].abs().max() < 1e-6:
        says = f"vectors become zero from position {first:,} on"
    else:
        says = f"all positions from {first + 1:,} on rotate like position {first:,}"
    if serves is None:
        return fault(name, "table-too-short", says, position=first)
    says += f"; the model promises {serves:,} positions"
    if serves <= first + 1:
        return remark(name, says, position=first)
    return fault(name, "table-too-short", says, position=first)


def check_far(
    target: Target,
    structure: Structure,
    spec: RotarySpec | None,
    end: int,
    serves: int | None,
    length: int | None,
    whose: str,
    with_keys: bool,
) -> Check:
    """Check angles at the last positions of a context of `end` tokens.

    spec: None if no specification is known that explains the near angles. whose: what it is.
    with_keys: whether keys rotate as queries do at near positions, and are compared here too.
    serves: how many positions the model promises, or None.
    """
    name = f"position {end - 1:,}"
    if target.tables_of is not None:
        return not_tested(name, "the caller's tables decide")
    if spec is None:
        return not_tested(name, "no specification to compare with; see --like")
    if target.takes == "nothing" and 2 * end * target.head_dim > 2 * MOST_NUMBERS:
        why = "positions are not followed: " if target.ignores_positions else ""
        return not_tested(name, f"{why}needs a call of {end:,} tokens")
    positions = torch.tensor([0, end - 2, end - 1])
    try:
        blocks = far_blocks(target.fresh(), structure, positions)
        keys = far_blocks(target.fresh(), structure, positions, "k") if with_keys else blocks
    except TargetError as error:
        if serves is not None and end <= serves:
            return fault(name, "table-too-short", f"raises within the model's {serves:,}: {error}")
        return remark(name, f"raises: {error}")
    if (keys - blocks).abs().max() > 10 * SAME:
        worst = (keys - blocks).abs().max().item()
        return fault(name, "table-too-short", f"keys differ from queries by {worst:.3g}")
    reached = Structure(
        structure.head_dim, structure.reads, structure.writes, structure.fixed, positions, blocks
    )
    angles = reached.angles - reached.angles[:1]
    exact = exact_angles(spec, positions, length, structure)
    off = wrapped(angles - exact).abs()
    frequencies = speeds(spec, length, structure)
    limit = allowed(positions, frequencies)
    worst = off[-1].max().item()
    vanished = reached.amplitudes[1:] < 0.5 * reached.amplitudes[:1]
    if not torch.isfinite(off).all() or vanished.any():
        says = "results are zero or not finite"
        if serves is not None and end > serves:
            return remark(name, f"{says}; the model promises {serves:,} positions")
        return fault(name, "table-too-short", says)
    if (off <= limit).all():
        if worst < 10 * SAME:
            return right(name, f"off by at most {worst:.1e} radians from {whose}", error=worst)
        says = f"off by up to {worst:.3g} radians from {whose}, which float32 angles explain"
        return remark(name, says, error=worst)
    fastest = int(frequencies.argmax())
    if wrapped(angles[-1] - angles[-2]).abs()[fastest] < SAME:
        says = "rotates like the position before it: the last row of the table is repeated"
        if serves is not None and end > serves:
            return remark(name, f"{says}; the model promises {serves:,} positions")
        return fault(name, "table-too-short", says, error=worst)
    signed = frequencies * signs(structure)
    for says, coarse in half_precision_angles(signed, positions[1:]):
        if (wrapped(angles[1:] - coarse).abs() <= limit[1:] + 0.01).all():
            return fault(name, "half-precision-angles", f"{says}; off by {worst:.3g}", error=worst)
    return fault(
        name,
        "half-precision-angles" if _coarse(off, positions, frequencies) else "frequencies",
        f"off by {worst:.3g} radians from {whose}",
        error=worst,
    )


def _coarse(off: Tensor, positions: Tensor, frequencies: Tensor) -> bool:
    """Whether each pair is off by less than rounding to bfloat16 explains, or may be anywhere."""
    angles = positions.to(torch.float64)[:, None] * frequencies
    explained = (angles * 2.0**-6).clamp(max=math.pi)
    return bool((off <= explained + 1e-3).all())


def check_bfloat16(target: Target, end: int = 1_024) -> Check:
    """Check vectors in bfloat16 against the same vectors in float32."""
    name = "bfloat16 vectors"
    if target.tables_of is not None or target.makes_tables:
        return not_tested(name, "the caller's tables decide")
    positions = torch.arange(end)
    x = random(target, end).to(torch.bfloat16)
    try:
        coarse = target.fresh().rotate(x, positions)
    except TargetError as failure:
        return remark(name, f"raises: {failure}")
    exact = target.fresh().rotate(x.to(torch.float32), positions)
    off = (coarse.to(torch.float32) - exact).norm(dim=-1) / x.float().norm(dim=-1)
    error = off.max().item()
    if not error <= 0.03:
        worst = int(off.flatten().argmax())
        says = f"are off by {error:.3g} of their length, at position {worst:,}"
        return fault(name, "half-precision-angles", says, error=error)
    if coarse.dtype != torch.bfloat16:
        dtype = str(coarse.dtype).removeprefix("torch.")
        says = f"come back as {dtype}: off by {error:.1e} of their length, at more memory"
        return remark(name, says, error=error)
    return right(name, f"off by at most {error:.1e} of the length of a vector", error=error)


def check_after_bfloat16(target: Target) -> Check:
    """Check that a call in bfloat16 leaves the next call in float32 as exact as before."""
    name = "float32 after bfloat16"
    if target.tables_of is not None or target.makes_tables:
        return not_tested(name, "the caller's tables decide")
    x, positions = random(target, SHORT * 4), torch.arange(SHORT * 4)
    used = target.fresh()
    try:
        used.rotate(x.to(torch.bfloat16), positions)
    except TargetError:
        return not_tested(name, "the target takes no bfloat16")
    error = far(used.rotate(x, positions), target.fresh().rotate(x, positions))
    if error > SAME:
        says = f"results are off by {error:.3g} after a call with bfloat16 vectors"
        return fault(name, "stale-table", says, error=error)
    return right(name, "results are as before")
