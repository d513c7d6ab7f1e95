"""Verdicts on a measured rotation, without a specification and against one.

Against one, measured angles are also compared with those that common mistakes produce.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.checks import ranges
from ropewalk.rotary.frequencies import cos_sin
from ropewalk.rotary.scaling import Proportional
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import apply_tables
from ropewalk.tools.verify.frequency_mistakes import (
    apart,
    changed_rules,
    fit_theta,
    frequency_hypotheses,
    half_precision_angles,
    other_thetas,
    rounded,
    theta_is,
)
from ropewalk.tools.verify.measured_rotation import (
    NEAR,
    SAME,
    UNSEEN,
    Structure,
    allowed,
    pairs_of,
    residuals,
    rounded_tables,
    roundoff,
    slopes,
    wrapped,
)
from ropewalk.tools.verify.pair_mistakes import name_mistake
from ropewalk.tools.verify.verify_report import Check, fault, not_tested, remark, right

MOST_FLOAT16 = 65_504
LEAST_THETA = 100.0  # of published models
BFLOAT16 = 2.0**-8  # the largest relative error of a number in bfloat16


def check_rotation(near: Tensor, positions: Tensor) -> tuple[list[Check], Structure | None]:
    """Return verdicts that need no specification, and the structure if pairs rotate.

    near: matrices (P, D, D) at positions (P,), of which the first is 0.
    """
    name = "rotates pairs"
    finite = torch.isfinite(near).all(-1).all(-1)
    overflow = []
    if not finite.all():
        first = int(positions[~finite][0])
        says = f"results are not finite numbers from position {first:,} on"
        if first <= MOST_FLOAT16 // 2:
            return [fault(name, "uninitialised-frequencies", says)], None
        says += f": numbers of float16 end at {MOST_FLOAT16:,}"
        overflow = [fault("far positions", "half-precision-angles", says)]
        near, positions = near[finite], positions[finite]
    structure = pairs_of(near, positions)
    if structure is None:
        worst = (near.mT @ near - torch.eye(near.shape[-1], dtype=near.dtype)).abs().max().item()
        says = "dimensions are not mixed in pairs, so lengths and distances are not kept"
        return [fault(name, "not-a-rotation", says, error=worst)], None
    if not len(structure.writes):
        says = "no dimension rotates: frequencies are 0, or no rotation is applied"
        return [fault(name, "uninitialised-frequencies", says)], None
    error, zero = structure.errors.max().item(), structure.blocks[0]
    cosines = zero.diagonal(dim1=-2, dim2=-1).abs().amin(-1)
    quarter = cosines < 0.5 * structure.amplitudes[0]
    turned = structure.angles[0].abs()
    if quarter.any() and ((turned - math.pi / 2).abs() < 1e-3)[quarter].all() and error < 1e-3:
        says = f"at position 0, {int(quarter.sum())} pairs are rotated by 90 degrees"
        return [fault(name, "cos-sin-mixed", says, pairs=float(quarter.sum()))], None
    if error > 1e-2 and (mistake := name_mistake(structure, name)) is not None:
        return [mistake], None
    if error > 1e-2:
        off = torch.stack((zero[..., 0, 1], zero[..., 1, 0])).abs().amax(0)
        size = structure.amplitudes[0].clamp(min=1e-9)
        mixed = (off > 0.3 * size) | (cosines < 0.3 * size)
        if mixed.any():
            says = f"at position 0, {int(mixed.sum())} pairs have a sine of 1 or a cosine of 0"
            return [fault(name, "cos-sin-mixed", says, error=error)], None
        says = "pairs of dimensions are mixed, but not rotated"
        return [fault(name, "not-a-rotation", says, error=error)], None
    still = structure.head_dim - structure.writes.numel()
    pairs = right(name, f"{len(structure.writes)} pairs rotate, {still} dimensions do not")
    basics = [pairs, *overflow, _check_zero(structure), _check_norms(structure)]
    if (dtype := rounded_tables(structure)) is not None:
        says = f"cos and sin are rounded to {dtype}".replace("torch.", "")
        basics.append(fault("tables", "rounded-tables", says, error=roundoff(structure)))
    return basics, structure


def _check_zero(structure: Structure) -> Check:
    name, turned = "position 0", structure.angles[0].abs().max().item()
    if turned > 1e-3:
        says = f"{name} is rotated by up to {turned:.3g} radians; scores depend on distances all"
        return remark(name, f"{says} the same", angle=turned)
    if not torch.equal(structure.reads, structure.writes):
        return right(name, f"{name} is not rotated; pairs are written in another order")
    return right(name, f"{name} is the identity")


def _check_norms(structure: Structure) -> Check:
    drifts = (structure.amplitudes / structure.amplitudes[:1] - 1).abs()
    drift = drifts.max().item()
    if drift > 1e-2:
        position = int(structure.positions[int(drifts.amax(-1).argmax())])
        says = f"lengths change by up to {drift:.3g} of their size, most at position {position:,}"
        return fault("norms", "norm-drift", says, drift=drift)
    return right("norms", f"lengths change by at most {drift:.1e} of their size", drift=drift)


def pairing_of(dims: Tensor) -> str:
    """Return "half", "interleaved" or "another order" for pairs (R/2, 2)."""
    block = torch.arange(dims.numel()) + int(dims.min())
    if torch.equal(dims, block.view(2, -1).mT):
        return "half"
    return "interleaved" if torch.equal(dims, block.view(-1, 2)) else "another order"


def describe(structure: Structure) -> list[Check]:
    """Return what a rotation is, if there is no specification to compare it with."""
    reads, writes = pairing_of(structure.reads), pairing_of(structure.writes)
    order = reads if reads == writes else f"{reads} when read, {writes} when written"
    rotating = structure.writes.flatten()
    part = f"dimensions {int(rotating.min())} to {int(rotating.max())} of {structure.head_dim}"
    frequencies = slopes(structure)
    checks = [right("pairing", order), right("rotary part", f"{part} rotate")]
    backwards = frequencies < 0
    if backwards.any() and not backwards.all():
        return [*checks, fault("sign", "wrong-sign", "some pairs rotate backwards")]
    sign = "backwards: by -m·f at position m" if backwards.all() else "forwards"
    size, amplitude = structure.amplitudes.median().item(), right("amplitude", "1")
    if abs(size - 1) > SAME:
        amplitude = remark("amplitude", f"cos and sin have the factor {size:.6g}")
    line = _check_line(structure, frequencies)
    named = _describe_frequencies(frequencies.abs(), roundoff(structure))
    return [*checks, right("sign", sign), line, named, amplitude]


def _check_line(structure: Structure, frequencies: Tensor) -> Check:
    """Whether angles are proportional to positions, so that scores depend on distances alone."""
    name = "scores relative"
    near = structure.positions <= NEAR
    off = residuals(structure, frequencies)[near]
    positions = structure.positions[near]
    limit = allowed(positions, frequencies) + roundoff(structure)
    worst = (off / limit).max().item()
    if worst <= 1:
        return right(name, f"angles are proportional to positions within {off.max():.1e} radians")
    moved = wrapped(structure.angles - structure.angles[:1])[near]
    for says, coarse in half_precision_angles(frequencies, positions):
        if (wrapped(moved - coarse).abs() <= limit).all():
            return fault(name, "half-precision-angles", says, error=off.max().item())
    row, pair = divmod(int((off / limit).argmax()), off.shape[-1])
    position = int(positions[row])
    says = f"at position {position:,}, pair {pair} is off its line by {off[row, pair]:.3g} radians"
    angle = position * frequencies[pair].abs().item()
    if off[row, pair] <= 4 * BFLOAT16 * max(angle, 1.0):
        return fault(name, "half-precision-angles", says, error=off[row, pair].item())
    return fault(name, "frequencies", says, error=off[row, pair].item())


def _describe_frequencies(frequencies: Tensor, rounding: float) -> Check:
    """Name the theta of frequencies (R/2,). rounding: of the tables that they were read from."""
    name = "frequencies"
    if len(frequencies) < 3 or (frequencies <= 0).any():
        return remark(name, f"{len(frequencies)} pairs; the fastest has {frequencies.max():.6g}")
    theta, factor, error = fit_theta(frequencies)
    near = rounded(theta)
    says = f"theta {near:.12g}" + (
        f", all divided by {rounded(factor):g}" * (abs(factor - 1) > SAME)
    )
    if error < 2e-5 and theta < LEAST_THETA:
        return remark(name, f"{says}, which is unusually small: is the exponent -2i/R?")
    if error < 2e-5:
        return right(name, says, theta=theta, factor=factor)
    if error < 2 * rounding:
        return remark(name, f"near theta {rounded(theta, rounding):.12g}; tables are rounded")
    coarse = frequencies.to(torch.bfloat16).to(torch.float64)
    if error < 3 * BFLOAT16 and (coarse / frequencies - 1).abs().max() < 1e-5:
        says = f"every frequency is a bfloat16 number, near those of theta {near:.3g}"
        return fault(name, "half-precision-angles", says, error=error)
    if (frequencies.diff() > 0).any():
        says = "frequencies do not fall from pair to pair"
        return remark(name, f"{says}: several axes, or values that were never set; see --like")
    return remark(name, "no single theta; a scaling rule is applied, which --like can check")


def structure_of(spec: RotarySpec, positions: Tensor, length: int | None) -> Structure:
    """Return the structure of a specification's own rotation, with exact angles.

    Pairs that are too slow to be seen at these positions are left out, as in what is measured.
    """
    dim, count = spec.head_dim, len(positions)
    basis = torch.eye(dim, dtype=torch.float64).view(1, dim, 1, dim).expand(-1, -1, count, -1)
    (rotated,) = apply_tables(spec, exact_tables(spec, positions, length), basis)
    structure = pairs_of(rotated[0].permute(1, 2, 0), positions)
    assert structure is not None, spec
    return structure


def exact_tables(spec: RotarySpec, positions: Tensor, length: int | None) -> tuple[Tensor, Tensor]:
    """Return cos and sin (P, R/2) at any positions, also beyond the length."""
    per_pair = torch.tensor(spec.fixed_point_frequencies(length))
    return cos_sin(positions[:, None], per_pair, spec.amplitude_at(length))


def angle_errors(
    reached: Structure, near: Structure, spec: RotarySpec, length: int | None
) -> tuple[Tensor, Tensor]:
    """Return how far angles are from exact ones, and how far float32 angles may be: (P, R/2).

    reached: a rotation at any positions, the first of them 0. near: the same one at near positions,
    which show the signs.
    """
    cos, sin = (table.to(torch.float64) for table in exact_tables(spec, reached.positions, length))
    angles = torch.atan2(sin, cos) * spec.inverse_frequencies(length).sign()
    exact = angles[:, seen(spec, length, near)] * signs(near)
    off = wrapped(reached.angles - reached.angles[:1] - exact).abs()
    return off, allowed(reached.positions, speeds(spec, length, near)) + roundoff(near)


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
    part = _compare_part(structure, expected)
    if part.fault and isinstance(spec.scaling, Proportional):  # its fraction says what rotates
        for says, rule in changed_rules(spec.scaling):
            other = replace(spec, scaling=rule)
            if structure_of(other, structure.positions, length).pairs_as(structure):
                part = replace(part, says=f"{part.says}: {says}", mistake=says)
                spec, expected = other, structure_of(other, structure.positions, length)
    checks = [part, _compare_pairs(structure, expected)]
    measured = slopes(structure)
    if structure.writes.numel() != expected.writes.numel() and not spec.axes:
        size = structure.writes.numel()
        head_dim = max(spec.head_dim, size)
        try:
            spec = replace(spec, rotary_dim=size, start=0, blocks=None, head_dim=head_dim)
        except ValueError:  # a rule with a number for each pair
            why = "the rule has a number for each specified pair"
            return [*checks, not_tested("frequencies", why)]
        expected = structure_of(spec, structure.positions, length)
    if len(measured) != len(expected.writes):
        return [*checks, fault("frequencies", "frequencies", f"{len(measured)} pairs rotate")]
    sign = right("sign", "as specified")
    if backwards := int((measured * slopes(expected) < 0).sum()):
        says = f"{backwards} of {len(measured)} pairs rotate in the other direction"
        sign = fault("sign", "wrong-sign", says)
    angles = _compare_frequencies(structure, spec, others or {}, length)
    return [*checks, sign, *angles, _compare_amplitude(structure, spec, length)]


def _compare_part(structure: Structure, expected: Structure) -> Check:
    name = "rotary part"
    ours, theirs = (set(s.writes.flatten().tolist()) for s in (structure, expected))
    if ours == theirs:
        return right(name, f"{len(ours)} of {structure.head_dim} dimensions rotate")
    says = f"{len(ours)} dimensions rotate, specified are {len(theirs)}"
    if len(ours) == structure.head_dim > len(theirs):
        return fault(name, "partial-ignored", says)
    if len(ours) == len(theirs):
        says = f"dimensions {ranges(ours)} rotate, specified are {ranges(theirs)}"
    return fault(name, "rotary-part", says)


def _compare_pairs(structure: Structure, expected: Structure) -> Check:
    name = "pairing"
    kinds = [(pairing_of(x.reads), pairing_of(x.writes)) for x in (structure, expected)]
    measured, wanted = (" to ".join(dict.fromkeys(kind)) for kind in kinds)
    known = kinds[0] == kinds[1] and "another order" not in kinds[0]
    if known or structure.pairs_as(expected):
        return right(name, measured)
    if len(structure.writes) == 1:
        return right(name, "one pair")
    return fault(name, "pairing", f"pairs are {measured}, specified is {wanted}")


def _compare_frequencies(
    structure: Structure, spec: RotarySpec, others: Mapping[str, RotarySpec], length: int | None
) -> list[Check]:
    """Return the verdict on angles: those of the specification, or of which mistakes."""
    name = "frequencies"
    near = structure.positions <= NEAR
    positions = structure.positions[near]
    angles = wrapped(structure.angles[near] - structure.angles[:1])  # position 0 is apart
    sign, visible = signs(structure), seen(spec, length, structure)
    exact = speeds(spec, length, structure)
    coarse = roundoff(structure)

    def fit(frequencies: Tensor) -> bool:
        off = wrapped(angles - positions.to(torch.float64)[:, None] * frequencies * sign).abs()
        return bool((off <= allowed(positions, frequencies) + coarse).all())

    def rounding_of(frequencies: Tensor) -> str | None:
        """Return which rounding of these frequencies explains the angles, or None."""
        limit = 2 * allowed(positions, frequencies) + coarse + 0.005
        for says, made in half_precision_angles(frequencies * sign, positions):
            if (wrapped(angles - made).abs() <= limit).all():
                return says
        return None

    off = wrapped(angles - positions.to(torch.float64)[:, None] * exact * sign).abs()
    if fit(exact):
        says = f"as specified; near angles are off by at most {off.max():.1e} radians"
        return [right(name, says, error=off.max().item())]
    row = int((off / allowed(positions, exact)).amax(-1).argmax())
    error = off[row].max().item()
    off_by = f"off by {error:.3g} radians at position {int(positions[row]):,}"

    def wrong(named: str, mistake: str, **numbers: float) -> list[Check]:
        says = f"{mistake}; {off_by}" if mistake else off_by
        return [fault(name, named, says, mistake=mistake, **numbers, error=error)]

    hypotheses = []
    for hypothesis in frequency_hypotheses(spec, others, length):
        if len(hypothesis.frequencies) == len(visible):
            frequencies = hypothesis.frequencies.abs()[visible]
            if fit(frequencies):
                return wrong(hypothesis.fault, hypothesis.says)
            hypotheses.append((hypothesis, frequencies))
    if (rounding := rounding_of(exact)) is not None:
        return wrong("half-precision-angles", rounding)
    measured = slopes(structure).abs()
    if spec.scaling is None:
        made = other_thetas(spec, length)
        hypotheses += [(each, each.frequencies.abs()[visible]) for each in made]
    for hypothesis, frequencies in hypotheses:
        alike = ((measured - frequencies).abs() <= 4 * BFLOAT16 * frequencies).all()
        if alike and (rounding := rounding_of(frequencies)) is not None:
            coarser = fault("rounding", "half-precision-angles", rounding, mistake=rounding)
            return [*wrong(hypothesis.fault, hypothesis.says), coarser]
    return wrong(*_unnamed(measured, exact, spec))


def _unnamed(measured: Tensor, exact: Tensor, spec: RotarySpec) -> tuple[str, str]:
    """Return the fault, and what can be said, of frequencies that no hypothesis explains."""
    factors = measured / exact.clamp(min=1e-30)
    theta, factor, misfit = fit_theta(measured.clamp(min=1e-30))
    several = len(measured) > 2
    if several and factors.std() < 1e-6:
        times = f"{rounded(factors.mean().item(), 1e-7):g}"
        return "frequencies", f"all frequencies are multiplied by {times}"
    is_theta = several and abs(factor - 1) < SAME and apart(theta, spec.theta)
    if is_theta and misfit < 2e-5:
        return "theta", theta_is(is_theta, spec.theta)
    if ((factors - 1).abs() < 2 * BFLOAT16).all():
        return "half-precision-angles", "near the specified ones"
    if several and misfit < 1e-3 and abs(factor - 1) < 1e-3:
        return "theta", theta_is(f"{rounded(theta, 1e-3):.10g}", spec.theta)
    if ((measured.diff() > 1e-9).any() and spec.axes is None) or (measured < 1e-12).all():
        mistake = "frequencies do not fall from pair to pair, as if they were never set"
        return "uninitialised-frequencies", mistake
    return "frequencies", ""


def _compare_amplitude(structure: Structure, spec: RotarySpec, length: int | None) -> Check:
    measured, expected = structure.amplitudes.median().item(), spec.amplitude_at(length)
    if abs(measured / expected - 1) <= 10 * SAME:
        return right("amplitude", f"{measured:.6g}")
    known = {": the factor is missing": 1.0, ": the factor is applied twice": expected**2}
    if spec.scaling is not None:
        for says, rule in changed_rules(spec.scaling):
            known.setdefault(f": {says}", spec.amplitude * rule.amplitude(length))
    mistakes = [word for word, size in known.items() if abs(measured / size - 1) <= 10 * SAME]
    says = "".join((f"{measured:.6g}, specified is {expected:.6g}", *mistakes[:1]))
    return fault("amplitude", "amplitude", says, measured=measured, expected=expected)
