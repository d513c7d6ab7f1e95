"""Verdicts on a measured rotation against its specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.frequencies import cos_sin
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import apply_tables
from ropewalk.tools.verify.describe import BFLOAT16, NEAR, SAME, allowed, pairing_of
from ropewalk.tools.verify.hypotheses import (
    fit_theta,
    frequency_hypotheses,
    half_precision_angles,
    rounded,
)
from ropewalk.tools.verify.results import Check, fault, not_tested, right
from ropewalk.tools.verify.structure import UNSEEN, Structure, pairs_of, slopes, wrapped


def structure_of(spec: RotarySpec, positions: Tensor, length: int | None) -> Structure:
    """Return the structure of a specification's own rotation, with exact angles.

    Pairs that are too slow to be seen at these positions are left out, as in what is measured.
    """
    dim, count = spec.head_dim, len(positions)
    basis = torch.eye(dim, dtype=torch.float64).view(1, dim, 1, dim).expand(-1, -1, count, -1)
    (rotated,) = apply_tables(spec, exact_tables(spec, positions, length), basis)
    structure = pairs_of(rotated[0].permute(1, 2, 0), positions, UNSEEN)
    assert structure is not None, spec
    return structure


def exact_tables(spec: RotarySpec, positions: Tensor, length: int | None) -> tuple[Tensor, Tensor]:
    """Return cos and sin (P, R/2) at any positions, also beyond the length."""
    per_pair = torch.tensor(spec.fixed_point_frequencies(length))
    return cos_sin(positions[:, None], per_pair, spec.amplitude_at(length))


def exact_angles(
    spec: RotarySpec, positions: Tensor, length: int | None, structure: Structure
) -> Tensor:
    """Return the exact angles (P, R/2) of the pairs in a structure, with its signs."""
    cos, sin = (table.to(torch.float64) for table in exact_tables(spec, positions, length))
    angles = torch.atan2(sin, cos) * spec.inverse_frequencies(length).sign()
    return angles[:, seen(spec, length, structure)] * signs(structure)


def speeds(spec: RotarySpec, length: int | None, structure: Structure) -> Tensor:
    """Return the radians per position of the pairs in a structure, without their signs."""
    return spec.inverse_frequencies(length).abs()[seen(spec, length, structure)]


def seen(spec: RotarySpec, length: int | None, structure: Structure) -> Tensor:
    """Return which pairs of a specification (R/2,) move visibly at the measured positions."""
    frequencies = spec.inverse_frequencies(length).abs()
    if len(frequencies) == len(structure.writes):
        return torch.ones_like(frequencies, dtype=torch.bool)
    moved = (structure.positions.to(torch.float64)[:, None] * frequencies).sin().abs().amax(0)
    return moved * spec.amplitude_at(length) > UNSEEN


def signs(structure: Structure) -> Tensor:
    """Return 1 for pairs that rotate forwards, -1 for others."""
    return torch.where(slopes(structure) < 0, -1.0, 1.0)


def compare(
    structure: Structure,
    spec: RotarySpec,
    others: Mapping[str, RotarySpec] | None = None,
    length: int | None = None,
) -> list[Check]:
    """Return verdicts on a measured rotation against its specification.

    others: the specifications of the model's other types of layers, by name.
    """
    expected = structure_of(spec, structure.positions, length)
    checks = [_compare_part(structure, expected), _compare_pairs(structure, expected)]
    measured = slopes(structure)
    if structure.writes.numel() != expected.writes.numel() and not spec.axes:
        size = 2 * len(structure.writes)
        try:
            spec = replace(
                spec,
                rotary_dim=size,
                start=0,
                blocks=None,
                head_dim=max(spec.head_dim, size),
            )
        except ValueError:  # a rule with a number for each pair
            why = "the rule has a number for each specified pair"
            return [*checks, not_tested("frequencies", why)]
        expected = structure_of(spec, structure.positions, length)
    if len(measured) != len(expected.writes):
        return [*checks, fault("frequencies", "frequencies", f"{len(measured)} pairs rotate")]
    wanted = slopes(expected)
    if (measured * wanted < 0).any():
        backwards = int((measured * wanted < 0).sum())
        says = f"{backwards} of {len(measured)} pairs rotate in the other direction"
        checks.append(fault("sign", "wrong-sign", says))
    else:
        checks.append(right("sign", "as specified"))
    checks.append(compare_frequencies(structure, spec, others or {}, length))
    checks.append(_compare_amplitude(structure, spec.amplitude_at(length), spec))
    return checks


def _compare_part(structure: Structure, expected: Structure) -> Check:
    name = "rotary part"
    ours, theirs = (set(s.writes.flatten().tolist()) for s in (structure, expected))
    if ours == theirs:
        return right(name, f"{len(ours)} of {structure.head_dim} dimensions rotate")
    says = f"{len(ours)} dimensions rotate, specified are {len(theirs)}"
    if len(ours) == structure.head_dim > len(theirs):
        return fault(name, "partial-ignored", says)
    if len(ours) == len(theirs):
        says = f"dimensions from {min(ours)} on rotate, specified are those from {min(theirs)} on"
    return fault(name, "rotary-part", says)


def _compare_pairs(structure: Structure, expected: Structure) -> Check:
    name = "pairing"
    kinds = [
        tuple(pairing_of(s, dims) for dims in (s.reads, s.writes)) for s in (structure, expected)
    ]
    same = torch.equal(structure.reads, expected.reads) and torch.equal(
        structure.writes, expected.writes
    )
    measured, wanted = (" to ".join(dict.fromkeys(kind)) for kind in kinds)
    if same or (kinds[0] == kinds[1] and "another order" not in kinds[0]):
        return right(name, measured)
    if len(structure.writes) == 1:
        return right(name, "one pair")
    return fault(name, "pairing", f"pairs are {measured}, specified is {wanted}")


def compare_frequencies(
    structure: Structure, spec: RotarySpec, others: Mapping[str, RotarySpec], length: int | None
) -> Check:
    """Return the verdict on angles: those of the specification, or of which mistake."""
    name = "frequencies"
    near = structure.positions <= NEAR
    positions = structure.positions[near]
    angles = wrapped(structure.angles[near] - structure.angles[:1])  # position 0 is apart
    sign, visible = signs(structure), seen(spec, length, structure)
    exact = speeds(spec, length, structure)
    off = _distance(angles, positions, exact * sign)
    limit = allowed(positions, exact)
    if (off <= limit).all():
        says = f"as specified; near angles are off by at most {off.max():.1e} radians"
        return right(name, says, error=off.max().item())
    row = int((off / limit).amax(-1).argmax())
    where = f"off by {off[row].max():.3g} radians at position {int(positions[row]):,}"
    numbers = {"error": off[row].max().item()}
    for hypothesis in frequency_hypotheses(spec, others, length):
        wrong = hypothesis.frequencies.abs()
        if len(wrong) == len(visible):
            wrong = wrong[visible]
            distance = _distance(angles, positions, wrong * sign)
            if (distance <= allowed(positions, wrong)).all():
                return fault(name, hypothesis.fault, f"{hypothesis.says}; {where}", **numbers)
    for says, coarse in half_precision_angles(exact * sign, positions):
        if (wrapped(angles - coarse).abs() <= 2 * limit + 0.005).all():
            return fault(name, "half-precision-angles", f"{says}; {where}", **numbers)
    return _unknown_frequencies(structure, exact, spec, where, numbers)


def _unknown_frequencies(
    structure: Structure, exact: Tensor, spec: RotarySpec, where: str, numbers: dict[str, float]
) -> Check:
    name = "frequencies"
    measured = slopes(structure).abs()
    factors = measured / exact.clamp(min=1e-30)
    ratio = (factors - 1).abs()
    if len(measured) > 2 and factors.std() < 1e-6:
        says = (
            f"all frequencies are multiplied by {rounded(factors.mean().item(), 1e-7):g}; {where}"
        )
        return fault(name, "frequencies", says, **numbers)
    theta, factor, error = fit_theta(measured.clamp(min=1e-30))
    if len(measured) > 2 and error < 2e-5 and abs(factor - 1) < SAME:
        says = f"theta is {rounded(theta):g}, specified is {spec.theta:g}; {where}"
        return fault(name, "theta", says, theta=theta, **numbers)
    if (ratio < 2 * BFLOAT16).all():
        return fault(name, "half-precision-angles", f"near the specified ones; {where}", **numbers)
    if len(measured) > 2 and error < 1e-3 and abs(factor - 1) < 1e-3:
        says = f"theta is {rounded(theta, 1e-3):g}, specified is {spec.theta:g}; {where}"
        return fault(name, "theta", says, theta=theta, **numbers)
    if ((measured.diff() > 1e-9).any() and spec.axes is None) or (measured < 1e-12).all():
        says = f"frequencies do not fall from pair to pair, as if they were never set; {where}"
        return fault(name, "uninitialised-frequencies", says, **numbers)
    return fault(name, "frequencies", where, **numbers)


def _distance(angles: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    expected = positions.to(torch.float64)[:, None] * frequencies
    return wrapped(angles - expected).abs()


def _compare_amplitude(structure: Structure, expected: float, spec: RotarySpec) -> Check:
    measured = structure.amplitudes.median().item()
    says = f"{measured:.6g}, specified is {expected:.6g}"
    if abs(measured / expected - 1) <= 10 * SAME:
        return right("amplitude", f"{measured:.6g}")
    for power, word in ((0, "the factor is missing"), (2, "the factor is applied twice")):
        if abs(measured / expected**power - 1) <= 10 * SAME:
            says += f": {word}"
            break
    return fault("amplitude", "amplitude", says, measured=measured, expected=expected)


def same_for_keys(near: Tensor, structure: Structure) -> Check:
    """Return whether keys, with matrices (P, D, D), rotate as queries do."""
    name = "keys"
    finite = torch.isfinite(near).all(-1).all(-1)
    if not finite.all():
        first = int(structure.positions[int((~finite).to(torch.int8).argmax())])
        says = f"keys are not finite numbers from position {first:,} on"
        return fault(name, "half-precision-angles", says)
    keys = pairs_of(near, structure.positions, 1e-5)
    if keys is not None and not len(keys.writes):
        return fault(name, "not-a-rotation", "keys do not rotate")
    if keys is None or keys.errors.max() > 1e-2:
        return fault(name, "not-a-rotation", "keys do not rotate in pairs as queries do")
    if not torch.equal(keys.writes, structure.writes) or not torch.equal(
        keys.reads, structure.reads
    ):
        return fault(name, "pairing", "other dimensions of keys rotate together than of queries")
    off = (keys.blocks - structure.blocks).abs().max().item()
    if off <= 1e-3:
        return right(name, "rotate as queries do")
    if (slopes(keys) * slopes(structure) < 0).any():
        return fault(name, "wrong-sign", "keys and queries rotate in opposite directions")
    if abs(keys.amplitudes.median() - structure.amplitudes.median()) > 1e-3:
        return fault(name, "amplitude", "keys and queries have different amplitudes")
    return fault(name, "frequencies", f"rotations of keys and queries differ by {off:.3g}")


def is_xpos(near: Tensor, structure: Structure) -> bool:
    """Return whether lengths of queries change with the position, and keys undo it (xPos)."""
    sizes = structure.amplitudes
    keys = pairs_of(near[: len(sizes)], structure.positions, UNSEEN)
    if keys is None or keys.amplitudes.shape != sizes.shape:
        return False
    product = keys.amplitudes * sizes
    drifts = ((sizes / sizes[:1] - 1).abs() > 0.01).any()
    near_enough = structure.positions <= NEAR
    return bool(drifts and ((product / product[:1] - 1)[near_enough].abs() < 0.01).all())
