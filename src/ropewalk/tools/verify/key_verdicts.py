"""Verdicts on how keys rotate, compared with queries."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ropewalk.tools.verify.frequency_mistakes import (
    apart,
    fit_theta,
    half_precision_angles,
    rounded,
)
from ropewalk.tools.verify.measured_rotation import (
    NEAR,
    Structure,
    allowed,
    pairs_of,
    roundoff,
    slopes,
    table_end,
    wrapped,
)
from ropewalk.tools.verify.pair_mistakes import name_mistake
from ropewalk.tools.verify.verify_report import Check, fault, right

NAME = "keys"
SAME = 1e-3  # of blocks and amplitudes
MOST_SHIFT = 4_096  # positions


def same_for_keys(near: Tensor, structure: Structure) -> Check:
    """Return whether keys, with matrices (P, D, D), rotate as queries do, or how else."""
    finite = torch.isfinite(near).all(-1).all(-1)
    if not finite.all():
        first = int(structure.positions[~finite][0])
        says = f"keys are not finite numbers from position {first:,} on"
        return fault(NAME, "half-precision-angles", says)
    keys = pairs_of(near, structure.positions)
    if keys is not None and not len(keys.writes):
        return fault(NAME, "not-a-rotation", "keys do not rotate")
    if keys is None or keys.errors.max() > 1e-2:
        unknown = fault(NAME, "not-a-rotation", "keys do not rotate in pairs as queries do")
        return (None if keys is None else name_mistake(keys, NAME, "keys: ")) or unknown
    if not keys.pairs_as(structure):
        return _other_pairs(keys, structure)
    off = (keys.blocks - structure.blocks).abs().max().item()
    if off <= SAME:
        return right(NAME, "rotate as queries do")
    named, says = next(_differences(keys, structure))
    return fault(NAME, named, says, mistake=says, error=off)


def _other_pairs(keys: Structure, queries: Structure) -> Check:
    ours, theirs = (len(x.writes.unique()) for x in (keys, queries))
    if ours != theirs:
        says = f"{ours} dimensions of keys rotate, and {theirs} of queries"
        return fault(NAME, "rotary-part", says)
    return fault(NAME, "pairing", "other dimensions of keys rotate together than of queries")


def _differences(keys: Structure, queries: Structure) -> Iterator[tuple[str, str]]:
    """Yield the faults that explain how keys differ from queries, in words, the likeliest first."""
    ratios = keys.amplitudes / queries.amplitudes
    if (ratios / ratios[:1] - 1).abs().max() > 10 * SAME:
        yield "norm-drift", "keys become longer or shorter with their position, as queries do not"
    near = queries.positions <= NEAR
    positions = queries.positions[near]
    ours, theirs = keys.angles[near], queries.angles[near]
    speed, speed_of_keys = slopes(queries), slopes(keys)
    limit = 3 * allowed(positions, torch.maximum(speed.abs(), speed_of_keys.abs()))
    limit = limit + roundoff(keys) + roundoff(queries)

    def are(angles: Tensor) -> bool:
        return bool((wrapped(ours - angles).abs() <= limit).all())

    ratio = ratios.median().item()
    if are(theirs):
        if abs(ratio - 1) > SAME:
            yield "amplitude", f"keys are multiplied by {rounded(ratio):g}, compared with queries"
        if roundoff(keys):
            yield "rounded-tables", "cos and sin of keys are rounded to half precision"
        differ = (keys.blocks - queries.blocks).abs().amax((1, 2, 3)) > SAME
        position = int(queries.positions[differ][0])
        end = "table-too-short" if table_end(keys) else "frequencies"
        yield end, f"keys differ from queries from position {position:,} on"
    if are(math.pi / 2 - theirs) or are(-math.pi / 2 - theirs):
        yield "cos-sin-mixed", "cos and sin are exchanged in keys"
    if are(-theirs):
        yield "wrong-sign", "keys and queries rotate in opposite directions"
    shift = shift_of(keys, queries)
    if shift is not None and are(theirs + shift * speed):
        way = "ahead of" if shift > 0 else "behind"
        many = "position" if abs(shift) == 1 else "positions"
        yield "keys-shifted", f"keys are {abs(shift):,} {many} {way} queries"
    if are(theirs + ours[:1] - theirs[:1]):
        turned = wrapped(ours[0] - theirs[0])
        worst = turned[int(turned.abs().argmax())].item()
        yield "keys-shifted", f"keys are turned by up to {worst:.3g} radians at all positions"
    if are(2 * theirs):
        yield "rotated-twice", "keys are rotated by twice the angles of queries"
    if are(positions[:, None] * speed / 2):
        yield "rotated-twice", "queries are rotated by twice the angles of keys"
    for says, coarse in half_precision_angles(speed, positions):
        if (wrapped(ours - coarse).abs() <= limit + 0.005).all():
            yield "half-precision-angles", f"of keys, {says}"
    factors = speed_of_keys / speed
    if factors.max() - factors.min() <= 1e-5 * factors.mean().abs():
        times = rounded(factors.mean().item())
        yield "frequencies", f"keys rotate {times:g} times as far as queries, at each position"
    (own, divided, misfit), (other, times, misfit_of_queries) = (
        fit_theta(x.abs().clamp(min=1e-30)) for x in (speed_of_keys, speed)
    )
    short = apart(own, other)
    alike = abs(divided - 1) < SAME and abs(times - 1) < SAME
    if short is not None and alike and max(misfit, misfit_of_queries) < 2e-5:
        yield "theta", f"theta of keys is {short}, of queries {rounded(other):.10g}"
    if (speed_of_keys * speed < 0).any():
        yield "wrong-sign", "some pairs of keys rotate in the other direction than of queries"
    pair = int((factors - 1).abs().argmax())
    says = f"pair {pair} of keys rotates {factors[pair]:.6g} times as far as that of queries"
    yield "frequencies", says


def shift_of(keys: Structure, queries: Structure) -> int | None:
    """Return by how many positions keys are ahead of queries, None if by no such number."""
    turned, far = keys.angles[0] - queries.angles[0], torch.arange(1, MOST_SHIFT + 1)
    shifts = torch.stack((far, -far), -1).flatten().to(torch.float64)  # the nearest first
    off = wrapped(shifts[:, None] * slopes(queries) - turned).abs().amax(-1)
    fitting = shifts[off <= 0.01]
    return int(fitting[0]) if len(fitting) else None


def is_xpos(near: Tensor, structure: Structure) -> bool:
    """Return whether lengths of queries change with the position, and keys undo it (xPos)."""
    sizes = structure.amplitudes
    keys = pairs_of(near[: len(sizes)], structure.positions)
    if keys is None or keys.amplitudes.shape != sizes.shape:
        return False
    product = keys.amplitudes * sizes
    drifts = ((sizes / sizes[:1] - 1).abs() > 0.01).any()
    near_enough = structure.positions <= NEAR
    return bool(drifts and ((product / product[:1] - 1)[near_enough].abs() < 0.01).all())
