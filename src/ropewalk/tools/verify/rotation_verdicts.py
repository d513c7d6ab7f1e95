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
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import apply_tables
from ropewalk.tools.verify.frequency_mistakes import (
    Hypothesis,
    apart,
    changed_rules,
    fit_theta,
    frequency_hypotheses,
    half_precision_angles,
    rounded,
)
from ropewalk.tools.verify.measured_rotation import (
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
Named = tuple[str, str]  # a fault, and what it is in words
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
    if error > 1e-2:
        if (mistake := name_mistake(structure, name)) is not None:
            return [mistake], None
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
    near = structure.near
    off, limit = residuals(near, frequencies), limits(near, frequencies)
    if (off <= limit).all():
        return right(name, f"angles are proportional to positions within {off.max():.1e} radians")
    if (says := rounding_of(near, frequencies, limit)) is not None:
        return fault(name, "half-precision-angles", says, error=off.max().item())
    row, pair = divmod(int((off / limit).argmax()), off.shape[-1])
    position, error = int(near.positions[row]), off[row, pair].item()
    says = f"at position {position:,}, pair {pair} is off its line by {error:.3g} radians"
    coarse = error <= 4 * BFLOAT16 * max(position * frequencies[pair].abs().item(), 1.0)
    return fault(name, "half-precision-angles" if coarse else "frequencies", says, error=error)


def limits(structure: Structure, frequencies: Tensor) -> Tensor:
    """Return how far angles may be off lines of these slopes, in radians (P, R/2)."""
    # Rounded tables move both, the angle and the line.
    return allowed(structure.positions, frequencies) + 2 * roundoff(structure)


def rounding_of(structure: Structure, frequencies: Tensor, limit: Tensor) -> str | None:
    """Return which rounding of frequencies (R/2,) explains angles within limits, or None."""
    moved = structure.angles - structure.angles[:1]  # position 0 is apart
    made = half_precision_angles(frequencies, structure.positions)
    fitting = (says for says, angles in made if (wrapped(moved - angles).abs() <= limit).all())
    return next(fitting, None)


def _describe_frequencies(frequencies: Tensor, rounding: float) -> Check:
    """Name the theta of frequencies (R/2,). rounding: of the tables that they were read from."""
    name = "frequencies"
    if len(frequencies) < 3 or (frequencies <= 0).any():
        return remark(name, f"{len(frequencies)} pairs; the fastest has {frequencies.max():.6g}")
    theta, factor, error = fit_theta(frequencies)
    says = f"theta {rounded(theta):.12g}"
    says += f", all divided by {rounded(factor):g}" * (abs(factor - 1) > SAME)
    if error < 2e-5 and theta < LEAST_THETA:
        return remark(name, f"{says}, which is unusually small: is the exponent -2i/R?")
    if error < 2e-5:
        return right(name, says, theta=theta, factor=factor)
    if error < 2 * rounding:
        return remark(name, f"near theta {rounded(theta, rounding):.12g}; tables are rounded")
    coarse = frequencies.to(torch.bfloat16).to(torch.float64)
    if error < 3 * BFLOAT16 and (coarse / frequencies - 1).abs().max() < 1e-5:
        says = f"every frequency is a bfloat16 number, near those of theta {theta:.3g}"
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
    return off, allowed(reached.positions, speeds(spec, length, near)) + 2 * roundoff(near)


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
    return [*checks, sign, *angles, _compare_amplitude(structure, expected, spec, length)]


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
    name, near, measured = "frequencies", structure.near, slopes(structure)
    visible = seen(spec, length, structure)
    exact = speeds(spec, length, structure) * signs(structure)
    off, limit = residuals(near, exact), limits(near, exact)
    if (off <= limit).all():
        says = f"as specified; near angles are off by at most {off.max():.1e} radians"
        return [right(name, says, error=off.max().item())]
    hypotheses = [
        each._replace(frequencies=each.frequencies.abs()[visible] * signs(structure))
        for each in frequency_hypotheses(spec, others, length)
        if len(each.frequencies) == len(visible)
    ]
    found = _explained(near, measured, exact, hypotheses)
    if not found:
        found = [_rounded_or_theta(measured.abs(), exact.abs(), spec, roundoff(near))]
    (named, mistake), *more = found
    row = int((off / limit).amax(-1).argmax())
    error = off[row].max().item()
    off_by = f"off by {error:.3g} radians at position {int(near.positions[row]):,}"
    if spec.axis_count > 1:
        owners = torch.tensor(spec.axis_of_pair)[visible]
        off_by += f", on axes {ranges({*owners[(off > limit).any(0)].tolist()})}"
    says = f"{mistake}; {off_by}" if mistake else off_by
    theta = named == "theta" and spec.scaling is None
    numbers = {"theta": fit_theta(measured.abs(), _exponents(exact, spec))[0]} if theta else {}
    first = fault(name, named, says, mistake=mistake, **numbers, error=error)
    return [first, *(fault("rounding", other, why, mistake=why) for other, why in more)]


def _explained(
    near: Structure, measured: Tensor, exact: Tensor, hypotheses: list[Hypothesis]
) -> list[Named]:
    """Return the mistakes that explain wrong angles exactly, one or two, or none.

    measured, exact: radians per position (R/2,), with the signs of those that are measured.
    """
    for named, says, frequencies in hypotheses:
        if (residuals(near, frequencies) <= limits(near, frequencies)).all():
            return [(named, says)]
    for named, says, frequencies in (Hypothesis("", "", exact), *hypotheses):
        alike = (measured - frequencies).abs() <= 4 * BFLOAT16 * frequencies.abs()
        limit = limits(near, frequencies) + 0.005
        if alike.all() and (rounding := rounding_of(near, frequencies, limit)) is not None:
            return [(named, says)] * bool(named) + [("half-precision-angles", rounding)]
    return []


def _exponents(exact: Tensor, spec: RotarySpec) -> Tensor | None:
    """Return the exponents of theta in frequencies (R/2,) if axes state them, else None."""
    return None if spec.axes is None else -exact.abs().log() / math.log(spec.theta)


def _rounded_or_theta(measured: Tensor, exact: Tensor, spec: RotarySpec, coarse: float) -> Named:
    """Return what can be said of frequencies (R/2,), without signs, that no mistake explains.

    coarse: by how much rounded tables may move an angle.
    """
    factors = measured / exact.clamp(min=1e-30)
    theta, divided, misfit = fit_theta(measured.clamp(min=1e-30), _exponents(exact, spec))
    if len(measured) < 3:
        misfit = math.inf
    elif factors.std() < 1e-6:
        times = f"{rounded(factors.mean().item(), 1e-7):.12g}"
        return "frequencies", f"all frequencies are multiplied by {times}"
    short = apart(theta, spec.theta) if misfit < 2e-5 and abs(divided - 1) < SAME else None
    if short is None and not coarse and ((factors - 1).abs() < 2 * BFLOAT16).all():
        return "half-precision-angles", "near the specified ones"
    if short is None and misfit < 1e-3 and abs(divided - 1) < 1e-3:
        short = f"{rounded(theta, 1e-3):.12g}"
    if short not in (None, specified := f"{spec.theta:.12g}"):
        return "theta", f"theta is {short}, specified is {specified}"
    if ((measured.diff() > 1e-9).any() and spec.axes is None) or (measured < 1e-12).all():
        says = "frequencies do not fall from pair to pair, as if they were never set"
        return "uninitialised-frequencies", says
    return "frequencies", ""


def _compare_amplitude(
    structure: Structure, wanted: Structure, spec: RotarySpec, length: int | None
) -> Check:
    measured, expected = structure.amplitudes.median().item(), spec.amplitude_at(length)
    if abs(measured / expected - 1) <= 10 * SAME:
        off = (structure.still - wanted.still).abs()
        if off.max() <= 10 * SAME or not torch.equal(structure.writes, wanted.writes):
            return right("amplitude", f"{measured:.6g}")
        factor = structure.still[off.argmax()].item()
        says = f"dimensions that do not rotate are multiplied by {factor:.6g}"
        return fault("amplitude", "amplitude", says, measured=factor)
    known = {": the factor is missing": 1.0, ": the factor is applied twice": expected**2}
    if spec.scaling is not None:
        for says, rule in changed_rules(spec.scaling):
            known.setdefault(f": {says}", spec.amplitude * rule.amplitude(length))
    mistakes = [word for word, size in known.items() if abs(measured / size - 1) <= 10 * SAME]
    says = "".join((f"{measured:.6g}, specified is {expected:.6g}", *mistakes[:1]))
    return fault("amplitude", "amplitude", says, measured=measured, expected=expected)
