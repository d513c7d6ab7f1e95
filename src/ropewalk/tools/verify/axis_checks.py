"""Checks of positions of several axes: which pairs follow which axis, and each axis alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.call_form import Target, TargetError
from ropewalk.tools.verify.measured_rotation import Structure, pairs_of, served_matrices
from ropewalk.tools.verify.position_lines import OnLine, Steps
from ropewalk.tools.verify.rotation_verdicts import pairing_of, structure_of
from ropewalk.tools.verify.verify_report import Check, fault, not_tested, right

NAME = "axes"
#: The checks of a target's rotation against the specification on a line of positions.
Rotation = Callable[[Target, Steps], list[Check]]


def check_each_axis(
    target: Target, spec: RotarySpec, length: int | None, rotation: Rotation, near: Tensor
) -> Iterator[Check]:
    """Yield the checks of each axis alone, then those of all together if each alone is right.

    near: the places to measure.
    """
    together, why = rotation(target, target.steps), ""
    if any(check.fault and check.name == "rotates pairs" for check in together):
        why = "along all of them together, it is no rotation"
    elif spec.pairing != spec.write_pairing:  # at 0, such pairs look mixed
        why = "pairs are written in another order than they are read"
    if why:
        yield from (*together, not_tested(NAME, why))
        return
    axes = range(len(target.steps))
    lines = [tuple(int(each == axis) for each in axes) for axis in axes]
    alone = [replace(target, steps=steps) for steps in lines]
    try:
        measured = [served_matrices(each, near)[target.rotates[0]] for each in alone]
    except TargetError as error:
        yield fault(NAME, "fails", f"along one of them alone: {error}")
        return
    used, own, wanted = (length or 1) if spec.needs_length else None, [], []
    for steps, made in zip(lines, measured, strict=True):
        finite = torch.isfinite(made).all(-1).all(-1)
        at = near[: len(made)][finite]
        own.append(pairs_of(made[finite], at))
        wanted.append(structure_of(OnLine.of(spec, steps), at, used))
    shares, order = _compare_shares(own, wanted)
    yield from shares
    wrong = any(check.fault for check in shares)
    for axis, of in enumerate(order):
        if of is None:
            yield not_tested(f"axis {axis}", "see axes")
            continue
        found = [x for x in rotation(alone[axis], lines[of]) if x.fault != "rounded-tables"]
        if any(x.fault for x in found):
            wrong, told = True, [x for x in found if x.verdict != "right"]
        else:
            yield right(f"axis {axis}", f"{len(wanted[of].writes)} pairs follow it as specified")
            told = [x for x in found if x.verdict == "remark"]
        yield from (replace(x, name=f"axis {axis}, {x.name}") for x in told)
    if wrong:
        together = [x for x in together if x.fault == "rounded-tables"]
        together.append(not_tested("all axes together", "one of them alone is wrong"))
    yield from together


def _compare_shares(
    measured: Sequence[Structure | None], wanted: list[Structure]
) -> tuple[list[Check], list[int | None]]:
    """Return verdicts on which dimensions follow which axis, and whose each axis has, if known."""
    own, axes = [x for x in measured if x is not None], range(len(wanted))
    if len(own) < len(wanted):  # its own check says what else it is
        return [], list(axes)
    ours, theirs = ([set(x.writes.flatten().tolist()) for x in y] for y in (own, wanted))
    order = [theirs.index(dims) if dims in theirs else None for dims in ours]
    if order == list(axes):
        return [right(NAME, "each turns the dimensions that are specified")], order
    pairs = [torch.cat([x.writes for x in y]).unique(dim=0) for y in (own, wanted)]
    kinds = [{pairing_of(x.writes) for x in y if len(x.writes)} for y in (own, wanted)]
    named = "frequencies"
    kept: list[int | None] = [None for _ in axes]
    if ignored := [str(axis) for axis in axes if not ours[axis]]:
        named, says = "positions-ignored", f"positions on axis {', '.join(ignored)} have no effect"
        kept = [axis if axis == of else None for axis, of in enumerate(order)]
    elif set(order) == set(axes):
        moved = [str(axis) for axis in axes if order[axis] != axis]
        says, kept = f"positions of axes {', '.join(moved)} are exchanged", order
    elif torch.equal(*pairs) or kinds[0] == kinds[1] != {"another order"}:
        counts = (", ".join(str(len(x.writes)) for x in y) for y in (own, wanted))
        says = "they turn {} pairs, and not those that are specified, {}".format(*counts)
    else:
        named, says = "pairing", "pairs are {}, specified is {}".format(*map(pairing_of, pairs))
    return [fault(NAME, named, says, mistake=says)], kept
