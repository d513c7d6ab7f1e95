"""Verdicts on a measured rotation against its specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.describe import BFLOAT16, NEAR, SAME, allowed, pairing_of
from ropewalk.tools.verify.hypotheses import (
    fit_theta,
    frequency_hypotheses,
    half_precision_angles,
    rounded,
)
from ropewalk.tools.verify.results import Check, fault, right
from ropewalk.tools.verify.structure import Structure, pairs_of, slopes, wrapped


def structure_of(spec: RotarySpec, positions: Tensor, length: int | None) -> Structure:
    """Return the structure of a specification's own rotation, with exact angles."""
    dim, count = spec.head_dim, len(positions)
    basis = torch.eye(dim, dtype=torch.float64).view(1, dim, 1, dim).expand(-1, -1, count, -1)
    at = positions.expand(spec.axis_count, -1) if spec.axis_count > 1 else positions
    rotated = RotaryEmbedding(spec).rotate(basis, at, length=length)
    structure = pairs_of(rotated[0].permute(1, 2, 0), positions, 1e-7)
    assert structure is not None, spec
    return structure


def exact_angles(
    spec: RotarySpec, positions: Tensor, length: int | None, structure: Structure
) -> Tensor:
    """Return the exact angles of a specification (P, R/2), with the signs that were measured.

    Pairs that do not rotate are left out, as in the structure.
    """
    at = positions.expand(spec.axis_count, -1) if spec.axis_count > 1 else positions
    cos, sin = (table.to(torch.float64) for table in RotaryEmbedding(spec).tables(at, length))
    exact = spec.inverse_frequencies(length)
    angles = torch.atan2(sin, cos) * exact.sign()
    if len(exact) != len(structure.writes):
        angles = angles[:, exact != 0]
    return angles * signs(structure)


def speeds(spec: RotarySpec, length: int | None, structure: Structure) -> Tensor:
    """Return the radians per position of the pairs that rotate, without their signs."""
    exact = spec.inverse_frequencies(length).abs()
    return exact if len(exact) == len(structure.writes) else exact[exact != 0]


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
        spec = replace(
            spec,
            rotary_dim=2 * len(structure.writes),
            start=0,
            blocks=None,
            head_dim=max(spec.head_dim, 2 * len(structure.writes)),
        )
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
    positions, angles = structure.positions[near], structure.angles[near]
    sign = signs(structure)
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
        if len(wrong) == angles.shape[-1]:
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
    ratio = (measured / exact.clamp(min=1e-30) - 1).abs()
    if (ratio < 2 * BFLOAT16).all():
        return fault(name, "half-precision-angles", f"near the specified ones; {where}", **numbers)
    if len(measured) > 2 and (measured > 0).all():
        theta, factor, error = fit_theta(measured)
        if error < 1e-3 and abs(factor - 1) < 1e-3:
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
    if abs(measured / expected - 1) <= SAME:
        return right("amplitude", f"{measured:.6g}")
    for power, word in ((0, "it is missing"), (2, "it is applied twice")):
        if abs(measured / expected**power - 1) <= SAME:
            says += f": {word}"
            break
    return fault("amplitude", "amplitude", says, measured=measured, expected=expected)
