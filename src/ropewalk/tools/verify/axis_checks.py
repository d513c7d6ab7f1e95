"""Checks of positions of several axes: which pairs follow which axis, and each axis alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.call_form import Target
from ropewalk.tools.verify.measured_rotation import Structure, pairs_of
from ropewalk.tools.verify.position_lines import OnLine, Steps
from ropewalk.tools.verify.rotation_verdicts import pairing_of, structure_of
from ropewalk.tools.verify.verify_report import Check, fault, not_tested, right

NAME = "axes"
#: The checks of a target's rotation against the specification on a line of positions.
Rotation = Callable[[Target, Steps], list[Check]]
#: Matrices (P, D, D) of a target, and the positions (P,) at which they were measured.
Measure = Callable[[Target], tuple[Tensor, Tensor]]


def check_each_axis(
    target: Target, spec: RotarySpec, length: int | None, rotation: Rotation, measure: Measure
) -> Iterator[Check]:
    """Yield the checks of each axis alone, then those of all together if each alone is right."""
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
    measured = [measure(each) for each in alone]
    wanted = [
        structure_of(OnLine.of(spec, lines[axis]), measured[axis][1], length) for axis in axes
    ]
    shares, order = _compare_shares([pairs_of(*each) for each in measured], wanted)
    yield from shares
    wrong = any(check.fault for check in shares)
    for axis, of in enumerate(order):
        checks = (
            [not_tested("rotation", "see axes")] if of is None else rotation(alone[axis], lines[of])
        )
        told = [x for x in checks if x.verdict != "right" and x.fault != "rounded-tables"]
        faulty = any(x.fault for x in told)
        if of is not None and not faulty:
            yield right(f"axis {axis}", f"{len(wanted[of].writes)} pairs follow it as specified")
        kept = [x for x in told if faulty or of is None or x.verdict == "remark"]
        yield from (replace(x, name=f"axis {axis}, {x.name}") for x in kept)
        wrong = wrong or faulty
    if wrong:
        together = [x for x in together if x.fault == "rounded-tables"]
        together.append(not_tested("all axes together", "one of them alone is wrong"))
    yield from together


def _compare_shares(
    measured: Sequence[Structure | None], wanted: list[Structure]
) -> tuple[list[Check], list[int | None]]:
    """Return verdicts on which dimensions follow which axis, and whose each axis has, if known."""
    own, axes = [x.moving() for x in measured if x is not None], range(len(wanted))
    if len(own) < len(wanted):  # its own check says what else it is
        return [], list(axes)
    ours, theirs = ([set(x.writes.flatten().tolist()) for x in y] for y in (own, wanted))
    order = [theirs.index(dims) if dims in theirs else None for dims in ours]
    if order == list(axes):
        return [right(NAME, "each turns the dimensions that are specified")], order
    pairs = [torch.cat([x.writes for x in y]).unique(dim=0) for y in (own, wanted)]
    named = "frequencies"
    kept: list[int | None] = [None for _ in axes]
    if ignored := [str(axis) for axis in axes if not ours[axis]]:
        named, says = "positions-ignored", f"positions on axis {', '.join(ignored)} have no effect"
        kept = [axis if axis == of else None for axis, of in enumerate(order)]
    elif set(order) == set(axes):
        moved = [str(axis) for axis in axes if order[axis] != axis]
        says, kept = f"positions of axes {', '.join(moved)} are exchanged", order
    elif torch.equal(*pairs) or _kinds(own) == _kinds(wanted) != {"another order"}:
        counts = (", ".join(str(len(x.writes)) for x in y) for y in (own, wanted))
        says = "they turn {} pairs, and not those that are specified, {}".format(*counts)
    else:
        named, says = "pairing", "pairs are {}, specified is {}".format(*map(pairing_of, pairs))
    return [fault(NAME, named, says, mistake=says)], kept


def _kinds(structures: list[Structure]) -> set[str]:
    return {pairing_of(x.writes) for x in structures}
