"""Checks of positions of several axes, beyond those with the same position on each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import apply_tables
from ropewalk.tools.verify.call_form import Role, Target, TargetError
from ropewalk.tools.verify.measured_rotation import SAME, matrices
from ropewalk.tools.verify.verify_report import Check, fault, not_tested, right

NAME = "axes"
BETWEEN = torch.tensor([0.0, 0.5, 1.0])


def check_each_axis(
    target: Target,
    spec: RotarySpec,
    together: Mapping[Role, Tensor],
    positions: Tensor,
    same_pairs: bool,
) -> Iterator[Check]:
    """Yield whether the dimensions of each axis turn along it, and others stay as at position 0.

    together: matrices (P, D, D) by role, with the same position on each axis. same_pairs:
    whether the specified pairs rotate.
    """
    if not target.steps or target.ignores_positions:
        yield not_tested(NAME, "only the same position on each has an effect")
        return
    axes, parts = range(len(target.steps)), None
    lines = [tuple(int(each == axis) for each in axes) for axis in axes]
    try:
        measured = [matrices(replace(target, steps=steps).fresh(), positions) for steps in lines]
        if spec.continuous:
            parts = matrices(target.fresh(), BETWEEN)[target.rotates[0]]
    except TargetError as error:
        yield fault(NAME, "fails", f"along one of them alone: {error}")
        return
    numbers = torch.tensor([spec.axis_of_pair]) + 2.0  # apart from 1, of what does not rotate
    owners = apply_tables(spec, (numbers, 0 * numbers), torch.ones(1, 1, 1, spec.head_dim))[0] - 2
    none, owners = len(axes), owners.flatten()
    followed = [
        [axis for axis in (*axes, none) if _only(owners == axis, alone, together)]
        for alone in measured
    ]
    ignored = [str(axis) for axis in axes if none in followed[axis] and axis in spec.axis_of_pair]
    if ignored:
        says = f"positions on axis {', '.join(ignored)} have no effect"
        yield fault(NAME, "positions-ignored", says, mistake=says)
        return
    if not same_pairs:
        yield not_tested(NAME, "pairs are not those that are specified")
        return
    for axis, found in enumerate(followed):
        if axis in found:
            count = spec.axis_of_pair.count(axis)
            yield right(f"axis {axis}", f"the {count} specified pairs follow it, and no others")
        else:
            whose = f"the pairs of axis {found[0]}" if found else "other pairs than specified"
            says = f"positions on it turn {whose}"
            yield fault(f"axis {axis}", "frequencies", says, mistake=says)
    if parts is not None:
        yield _check_between(parts)


def _only(rows: Tensor, alone: Mapping[Role, Tensor], together: Mapping[Role, Tensor]) -> bool:
    """Return whether these rows (D,) are as along all axes together, and others as at 0."""
    wanted = {role: torch.where(rows[:, None], made, made[:1]) for role, made in together.items()}
    return all(
        torch.allclose(made, wanted[role], rtol=0.0, atol=10 * SAME, equal_nan=True)
        for role, made in alone.items()
    )


def _check_between(made: Tensor) -> Check:
    """Check matrices at BETWEEN: 0.5 turns half as far as 1, if code does not round it."""
    twice = made[1] @ torch.linalg.pinv(made[0]) @ made[1]
    if (error := (twice - made[2]).abs().max().item()) > 10 * SAME:
        says = "between integers, angles are not proportional to coordinates"
        return fault("coordinates", "frequencies", says, error=error)
    return right("coordinates", "angles are proportional to them between integers too")
