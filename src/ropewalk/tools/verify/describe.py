"""Verdicts on a measured rotation that need no specification."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.tools.verify.hypotheses import fit_theta, rounded
from ropewalk.tools.verify.results import Check, fault, remark, right
from ropewalk.tools.verify.structure import UNSEEN, Structure, pairs_of, residuals, slopes

NEAR = 4_096  # positions below which float32 angles are off by less than 1e-3
MOST_FLOAT16 = 65_504
LEAST_THETA = 100.0  # of published models
SAME = 1e-4  # of amplitudes, blocks and near angles
BFLOAT16 = 2.0**-8  # the largest relative error of a number in bfloat16


def allowed(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Return how far float32 angles may be off, in radians (P, R/2).

    The frequency and the product are each rounded by up to 2^-24 of the angle.
    """
    angles = positions.to(torch.float64)[:, None] * frequencies.abs()
    return SAME + 4 * angles * 2.0**-23


def check_rotation(near: Tensor, positions: Tensor) -> tuple[list[Check], Structure | None]:
    """Return verdicts that need no specification, and the structure if pairs rotate.

    near: matrices (P, D, D) at positions (P,), of which the first is 0.
    """
    name = "rotates pairs"
    finite = torch.isfinite(near).all(-1).all(-1)
    overflow = []
    if not finite.all():
        first = int(positions[int((~finite).to(torch.int8).argmax())])
        says = f"results are not finite numbers from position {first:,} on"
        if first <= MOST_FLOAT16 // 2:
            return [fault(name, "uninitialised-frequencies", says)], None
        says += f": numbers of float16 end at {MOST_FLOAT16:,}"
        overflow = [fault("far positions", "half-precision-angles", says)]
        near, positions = near[finite], positions[finite]
    structure = pairs_of(near, positions, UNSEEN)
    if structure is None:
        worst = (near.mT @ near - torch.eye(near.shape[-1], dtype=near.dtype)).abs().max().item()
        says = "dimensions are not mixed in pairs, so lengths and distances are not kept"
        return [fault(name, "not-a-rotation", says, error=worst)], None
    if not len(structure.writes):
        says = "no dimension rotates: frequencies are 0, or no rotation is applied"
        return [fault(name, "uninitialised-frequencies", says)], None
    error, zero = structure.errors.max().item(), structure.blocks[0]
    quarter = zero.diagonal(dim1=-2, dim2=-1).abs().amin(-1) < 0.5 * structure.amplitudes[0]
    turned = structure.angles[0].abs()
    if quarter.any() and ((turned - math.pi / 2).abs() < 1e-3)[quarter].all() and error < 1e-3:
        says = f"at position 0, {int(quarter.sum())} pairs are rotated by 90 degrees"
        return [fault(name, "cos-sin-mixed", says, pairs=float(quarter.sum()))], None
    if error > 1e-2:
        off = torch.stack((zero[..., 0, 1], zero[..., 1, 0])).abs().amax(0)
        size = structure.amplitudes[0].clamp(min=1e-9)
        mixed = (off > 0.3 * size) | (zero.diagonal(dim1=-2, dim2=-1).abs().amin(-1) < 0.3 * size)
        if mixed.any():
            says = f"at position 0, {int(mixed.sum())} pairs have a sine of 1 or a cosine of 0"
            return [fault(name, "cos-sin-mixed", says, error=error)], None
        says = "pairs of dimensions are mixed, but not rotated"
        return [fault(name, "not-a-rotation", says, error=error)], None
    count = len(structure.writes)
    checks = [right(name, f"{count} pairs rotate, {len(structure.fixed)} dimensions do not")]
    return [*checks, *overflow, _check_zero(structure), _check_norms(structure)], structure


def _check_zero(structure: Structure) -> Check:
    turned = structure.angles[0].abs().max().item()
    if turned > 1e-3:
        return remark(
            "position 0",
            f"position 0 is rotated by up to {turned:.3g} radians; scores "
            f"depend on distances all the same",
            angle=turned,
        )
    if not torch.equal(structure.reads, structure.writes):
        return right("position 0", "position 0 is not rotated; pairs are written in another order")
    return right("position 0", "position 0 is the identity")


def _check_norms(structure: Structure) -> Check:
    sizes = structure.amplitudes
    drift = (sizes / sizes[:1] - 1).abs().max().item()
    if drift > 1e-2:
        worst = int((sizes / sizes[:1] - 1).abs().amax(-1).argmax())
        position = int(structure.positions[worst])
        says = f"lengths change by up to {drift:.3g} of their size, most at position {position:,}"
        return fault("norms", "norm-drift", says, drift=drift)
    return right("norms", f"lengths change by at most {drift:.1e} of their size", drift=drift)


def pairing_of(structure: Structure, dims: Tensor) -> str:
    """Return "half", "interleaved" or "another order" for pairs (R/2, 2)."""
    flat = dims.flatten().sort().values
    n = len(dims)
    start = int(flat[0])
    if not torch.equal(flat, torch.arange(start, start + 2 * n)):
        return "another order"
    index = torch.arange(n)
    if torch.equal(dims, torch.stack((start + index, start + n + index), -1)):
        return "half"
    if torch.equal(dims, torch.stack((start + 2 * index, start + 2 * index + 1), -1)):
        return "interleaved"
    return "another order"


def describe(structure: Structure) -> list[Check]:
    """Return what a rotation is, if there is no specification to compare it with."""
    reads, writes = (pairing_of(structure, dims) for dims in (structure.reads, structure.writes))
    order = reads if reads == writes else f"{reads} when read, {writes} when written"
    rotating = structure.writes.flatten()
    part = f"dimensions {int(rotating.min())} to {int(rotating.max())} of {structure.head_dim}"
    frequencies = slopes(structure)
    checks = [right("pairing", order), right("rotary part", f"{part} rotate")]
    backwards = bool((frequencies < 0).all())
    sign = "backwards: by -m·f at position m" if backwards else "forwards"
    if not backwards and (frequencies < 0).any():
        return [*checks, fault("sign", "wrong-sign", "some pairs rotate backwards")]
    checks.append(right("sign", sign))
    checks.append(_check_line(structure, frequencies))
    checks.append(_describe_frequencies(frequencies.abs()))
    amplitude = structure.amplitudes.median().item()
    if abs(amplitude - 1) > SAME:
        checks.append(remark("amplitude", f"cos and sin have the factor {amplitude:.6g}"))
    else:
        checks.append(right("amplitude", "1"))
    return checks


def _check_line(structure: Structure, frequencies: Tensor) -> Check:
    """Whether angles are proportional to positions, so that scores depend on distances alone."""
    name = "scores relative"
    near = structure.positions <= NEAR
    off = residuals(structure, frequencies)[near]
    limit = allowed(structure.positions[near], frequencies)
    worst = (off / limit).max().item()
    if worst <= 1:
        return right(name, f"angles are proportional to positions within {off.max():.1e} radians")
    row, pair = divmod(int((off / limit).argmax()), off.shape[-1])
    position = int(structure.positions[near][row])
    says = f"at position {position:,}, pair {pair} is off its line by {off[row, pair]:.3g} radians"
    angle = position * frequencies[pair].abs().item()
    if off[row, pair] <= 4 * BFLOAT16 * max(angle, 1.0):
        return fault(name, "half-precision-angles", says, error=off[row, pair].item())
    return fault(name, "frequencies", says, error=off[row, pair].item())


def _describe_frequencies(frequencies: Tensor) -> Check:
    name = "frequencies"
    if len(frequencies) < 3 or (frequencies <= 0).any():
        return remark(name, f"{len(frequencies)} pairs; the fastest has {frequencies.max():.6g}")
    theta, factor, error = fit_theta(frequencies)
    near = rounded(theta)
    says = f"theta {near:g}" + (f", all divided by {rounded(factor):g}" * (abs(factor - 1) > SAME))
    if error < 2e-5 and theta < LEAST_THETA:
        return remark(name, f"{says}, which is unusually small: is the exponent -2i/R?")
    if error < 2e-5:
        return right(name, says, theta=theta, factor=factor)
    coarse = frequencies.to(torch.bfloat16).to(torch.float64)
    if error < 3 * BFLOAT16 and (coarse / frequencies - 1).abs().max() < 1e-5:
        says = f"every frequency is a bfloat16 number, near those of theta {near:.3g}"
        return fault(name, "half-precision-angles", says, error=error)
    if (frequencies.diff() > 0).any():
        says = "frequencies do not fall from pair to pair"
        return remark(name, f"{says}: several axes, or values that were never set; see --like")
    return remark(name, "no single theta; a scaling rule is applied, which --like can check")
