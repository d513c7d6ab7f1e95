"""Checks of a target as a function, beyond its rotation at near positions.

It is linear, and the same in a batch, with several heads, later, and in longer calls; its gradient
is the transpose; angles are right at far positions, and vectors in bfloat16.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.call_form import Target, TargetError
from ropewalk.tools.verify.frequency_mistakes import half_precision_angles
from ropewalk.tools.verify.measured_rotation import MOST_NUMBERS, Structure, at_far, wrapped
from ropewalk.tools.verify.rotation_verdicts import MOST_FLOAT16, angle_errors, signs, speeds
from ropewalk.tools.verify.verify_report import Check, fault, not_tested, remark, right

SAME = 2e-4
SHORT, LONG = 16, 8_192
AT, NEAR = torch.arange(SHORT), torch.arange(1_024)
COARSE = 0.03  # relative error of vectors above what bfloat16 results explain
FAR = (4_096, 131_072, 1_048_576)


def random(target: Target, length: int, batch: int = 1, seed: int = 0, heads: int = 1) -> Tensor:
    """Return the same random vectors `(B, H, S, D)` in each call with these arguments."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, length, target.head_dim, generator=generator)


def far(first: Tensor, second: Tensor) -> float:
    """Return the largest difference; infinite if a number is not finite."""
    difference = (first.to(torch.float64) - second.to(torch.float64)).abs().max().item()
    return difference if difference == difference else float("inf")


def check_linear(target: Target) -> Check:
    """Check that f(2u - 3v) = 2 f(u) - 3 f(v), which a position that is added fails."""
    u, v = random(target, SHORT, seed=1), random(target, SHORT, seed=2)
    added = target.rotate(torch.zeros_like(u), AT).abs().max().item()
    if added > SAME:
        says = f"vectors of zeros become as large as {added:.3g}: something is added"
        return fault("linear", "not-a-rotation", says, added=added)
    together = target.rotate(2 * u - 3 * v, AT)
    if not torch.isfinite(together).all():
        return fault("linear", "uninitialised-frequencies", "results are not finite numbers")
    apart = 2 * target.rotate(u, AT) - 3 * target.rotate(v, AT)
    error = far(together, apart)
    if error > 0.2:  # about 2^-7 of the size: more than rounding to bfloat16 explains
        return fault("linear", "not-a-rotation", f"f(2u - 3v) is off by {error:.3g}", error=error)
    if error > 10 * SAME:
        says = f"f(2u - 3v) is off by {error:.3g}: float32 vectors are rounded to half precision"
        return fault("linear", "half-precision-angles", says, error=error)
    return right("linear", f"f(2u - 3v) = 2 f(u) - 3 f(v) within {error:.1e}", error=error)


def check_input(target: Target) -> Check:
    """Check that the tensors passed to the target are as before."""
    if target.changes_input(random(target, SHORT), AT):
        return fault("input", "input-mutated", "the tensor that was passed has other numbers")
    return right("input", "unchanged")


def check_batch(target: Target) -> Check:
    """Check that each row of a batch is as it is alone."""
    x = random(target, SHORT, batch=3, heads=2)
    together = target.rotate(x, AT)
    error = far(together, torch.cat([target.rotate(row, AT) for row in x.split(1)]))
    if error > SAME:
        says = f"rows of a batch differ by {error:.3g} from themselves alone"
        return fault("batch", "batch", says, error=error)
    return right("batch", "each row as it is alone", error=error)


def check_positions(target: Target) -> Check:
    """Check that positions or an offset have an effect, and the right one, in later calls too."""
    name = "offset" if target.takes == "offset" else "positions"
    if target.takes == "nothing":
        return not_tested(name, "the target takes neither positions nor an offset")
    x, first = random(target, SHORT), 7
    part, count = x[:, :, first:], SHORT - first
    complete = target.fresh().rotate(x, AT)[:, :, first:]
    at_zero = target.fresh().rotate(x.roll(-first, -2), AT)[:, :, :count]
    used = target.fresh()
    shifted = used.rotate(part, AT[first:])
    if (error := far(shifted, complete)) > SAME:
        if far(shifted, at_zero) <= SAME:
            return fault(name, f"{name}-ignored", f"{name} {first} and {name} 0 have one result")
        return fault(name, "frequencies", f"{name} {first} is off by {error:.3g}", error=error)
    for start, expected in ((0, at_zero), (first, complete)):
        again = used.rotate(part, torch.arange(start, start + count))
        if far(again, expected) > SAME:
            says = (
                f"a call from position {start} on is wrong after a call of the same length from "
                f"position {first - start} on"
            )
            return fault(name, "stale-table", says)
    return right(name, f"a call from position {first} on agrees with one from 0 on")


def check_history(target: Target, spec: RotarySpec | None) -> list[Check]:
    """Check that a result is the same twice, and after and within a longer call.

    spec: if its rule depends on the length, a longer call may differ, but keys in a cache do not
    follow it. None: no call may differ.
    """
    x = random(target, SHORT)
    original = int(getattr(spec.scaling, "original_length", 0)) if spec is not None else 0
    count = min(max(LONG, original + SHORT), MOST_NUMBERS // target.head_dim)
    try:
        before = target.rotate(x, AT)
        long = x.repeat(1, 1, -(-count // SHORT), 1)[:, :, :count]
        within = target.rotate(long, torch.arange(count))
    except TargetError as failure:
        says = f"a call of {count:,} tokens raises: {failure}"
        return [remark("two lengths", says), not_tested("called twice", says)]
    if (error := far(target.rotate(x, AT), before)) > SAME:
        says = f"after a call of {count:,} tokens, positions 0 to {SHORT - 1} differ by {error:.3g}"
        twice = fault("called twice", "history", says, error=error)
    else:
        says = f"the same at the same positions, also after a call of {count:,} tokens"
        twice = right("called twice", says)
    if (error := far(within[:, :, :SHORT], before)) <= SAME:
        return [twice, right("two lengths", f"the same in calls of {SHORT} and {count:,} tokens")]
    if spec is not None and spec.needs_length:
        return [twice, remark("two lengths", on_cached_keys(spec))]
    says = f"positions 0 to {SHORT - 1} differ by {error:.3g} in a call of {count:,} tokens"
    return [twice, fault("two lengths", "history", says, error=error)]


def on_cached_keys(spec: RotarySpec) -> str:
    """Return what a rule that depends on the length means for keys in a cache."""
    original = int(getattr(spec.scaling, "original_length", 0))
    return (
        f"depends on the length, as {type(spec.scaling).__name__} does: when a sequence grows "
        f"beyond {original:,} tokens, keys that are cached do not fit new queries until "
        f"`rerotate` moves them; or give all calls the final length"
    )


def check_inputs(target: Target) -> list[Check]:
    """Check that q and k are each made of their own input, and that values stay as they are."""
    vectors = {role: random(target, SHORT, seed=seed) for seed, role in enumerate(target.rotates)}
    together, checks = target.rotate_all(vectors, AT), []
    if "v" in vectors:
        error = far(together.get("v", vectors["v"]), vectors["v"])
        rotated = fault("values", "values-rotated", f"values change by up to {error:.3g}")
        checks.append(rotated if error > SAME else right("values", "unchanged"))
    if len(target.must_rotate) < 2:
        return checks
    for role in target.must_rotate:
        if far(together[role], target.rotate_all(vectors[role], AT)[role]) > SAME:
            return [*checks, fault("inputs", "inputs-mixed", f"{role} depends on another input")]
    own = " and ".join(target.must_rotate) + " depend on their own input alone"
    return [*checks, right("inputs", own)]


def check_gradient(target: Target) -> Check:
    """Check that the gradient is the transpose: <f(u), g> = <u, gradient>, for q and for k."""
    name, u, g = "gradient", random(target, SHORT, seed=3), random(target, SHORT, seed=4)
    worst, without = 0.0, []
    for role in target.must_rotate:
        inputs = {x: random(target, SHORT, seed=5).requires_grad_() for x in target.rotates}
        with torch.enable_grad():
            y = target.rotate_all(inputs, AT)[role]
        if not y.requires_grad:
            without.append(role)
            continue
        try:
            (gradient,) = torch.autograd.grad(y, inputs[role], g)
        except RuntimeError as failure:
            return remark(name, f"the backward pass raises: {shown(str(failure), 160)}")
        forward = (target.rotate_all(u, AT)[role].double() * g.double()).sum().item()
        backward = (u.double() * gradient.double()).sum().item()
        worst = max(worst, abs(forward - backward) / max(1.0, g.norm().item()))
    if len(without) == len(target.must_rotate):
        return remark(name, "results carry no gradient, so this serves inference only")
    if without:
        return fault(name, "gradient", f"{without[0]} carries no gradient")
    if worst > 0.02:  # a wrong gradient is off by its size; half precision by less
        return fault(name, "gradient", f"is off by {worst:.3g}, relative to its size", error=worst)
    return right(name, f"the transpose of the rotation, within {worst:.1e}", error=worst)


def check_end(target: Target, structure: Structure, row: int, serves: int | None) -> Check:
    """Say where a table ends: from which position on rotations repeat, or vectors vanish.

    row: the first measured row that repeats the last one. serves: how many positions the model
    promises, or None.
    """
    name = "end of the table"
    low, high = int(structure.positions[row - 1]), int(structure.positions[row])
    window = torch.arange(low, high + 1)
    try:
        blocks = at_far(target, structure, window).blocks
    except TargetError as error:
        return fault(name, "fails", str(error))
    same = (blocks - blocks[-1]).abs().amax((1, 2, 3)) < 1e-6
    first = low + int(same.to(torch.int8).argmax())
    if blocks[-1].abs().max() < 1e-6:
        says = f"vectors become zero from position {first:,} on"
    else:
        says = f"all positions from {first + 1:,} on rotate like position {first:,}"
    if serves is not None:
        says += f"; the model promises {serves:,} positions"
        if serves <= first + 1:
            return remark(name, says, position=first)
    return fault(name, "table-too-short", says, position=first)


def check_far(
    target: Target,
    structure: Structure,
    spec: RotarySpec | None,
    end: int,
    *,
    serves: int | None,
    length: int | None,
    whose: str,
    with_keys: bool,
) -> Check:
    """Check angles at the last positions of a context of `end` tokens.

    spec: None if no specification is known that explains the near angles. whose: what it is, or
    why there is none.
    length: that of its rule, None for `end`. with_keys: whether keys rotate as queries do at near
    positions, and are compared here too. serves: how many positions the model promises, or None.
    """
    name = f"position {end - 1:,}"
    if target.tables_of is not None:
        return not_tested(name, "the caller's tables decide")
    if spec is None:
        return not_tested(name, f"nothing to compare with: {whose}")
    if target.takes == "nothing" and end * target.head_dim > MOST_NUMBERS:
        why = "positions are not followed: " if target.ignores_positions else ""
        return not_tested(name, f"{why}needs a call of {end:,} tokens")
    positions = torch.tensor([0, end - 2, end - 1])
    try:
        reached = at_far(target, structure, positions)
        keys = at_far(target, structure, positions, "k") if with_keys else reached
    except TargetError as error:
        if serves is not None and end <= serves:
            return fault(name, "table-too-short", f"raises within the model's {serves:,}: {error}")
        return remark(name, f"raises: {error}")
    if (worst := (keys.blocks - reached.blocks).abs().max().item()) > 10 * SAME:
        return fault(name, "table-too-short", f"keys differ from queries by {worst:.3g}")

    def ends(says: str) -> Check:
        if serves is not None and end > serves:
            return remark(name, f"{says}; the model promises {serves:,} positions")
        return fault(name, "table-too-short", says)

    length = length or end
    off, limit = angle_errors(reached, structure, spec, length)
    worst = off[-1].max().item()
    vanished = reached.amplitudes[1:] < 0.5 * reached.amplitudes[:1]
    if end > MOST_FLOAT16 and not torch.isfinite(reached.blocks).all():
        says = f"results are not finite numbers: those of float16 end at {MOST_FLOAT16:,}"
        return fault(name, "half-precision-angles", says)
    if not torch.isfinite(off).all() or vanished.any():
        return ends("results are zero or not finite")
    if (off <= limit).all():
        if worst < 10 * SAME:
            return right(name, f"off by at most {worst:.1e} radians from {whose}", error=worst)
        says = f"off by up to {worst:.3g} radians from {whose}, which float32 angles explain"
        return remark(name, says, error=worst)
    frequencies, angles = speeds(spec, length, structure), reached.angles - reached.angles[:1]
    for says, coarse in half_precision_angles(frequencies * signs(structure), positions[1:]):
        if (wrapped(angles[1:] - coarse).abs() <= limit[1:] + 0.01).all():
            return fault(name, "half-precision-angles", f"{says}; off by {worst:.3g}", error=worst)
    if wrapped(angles[-1] - angles[-2]).abs()[int(frequencies.argmax())] < SAME:
        return ends("rotates like the position before it: the last row of the table is repeated")
    # Rounding to bfloat16 explains so much, or that a pair is anywhere.
    explained = (positions.to(torch.float64)[:, None] * frequencies * 2.0**-6).clamp(max=math.pi)
    kind = "half-precision-angles" if (off <= explained + 1e-3).all() else "frequencies"
    return fault(name, kind, f"off by {worst:.3g} radians from {whose}", error=worst)


def check_bfloat16(target: Target) -> list[Check]:
    """Check vectors in bfloat16 against float32, which must be as exact afterwards as before."""
    name, after = "bfloat16 vectors", "float32 after bfloat16"
    x, at, exact = _coarse_and_exact(target)
    try:
        coarse = target.rotate(x, at)
    except TargetError as failure:
        no_test = not_tested(after, "the target takes no bfloat16")
        return [remark(name, f"raises: {failure}"), no_test]
    error, where = _off_by(coarse, exact)
    check = right(name, f"off by at most {error:.1e} of the length of a vector", error=error)
    if not error <= COARSE:
        check = fault(name, "half-precision-angles", f"are {where}", error=error)
    elif coarse.dtype != torch.bfloat16:
        dtype = str(coarse.dtype).removeprefix("torch.")
        says = f"come back as {dtype}: off by {error:.1e} of their length, at more memory"
        check = remark(name, says, error=error)
    if (error := far(target.rotate(x.to(torch.float32), at), exact)) > SAME:
        says = f"results are off by {error:.3g} after a call with bfloat16 vectors"
        return [check, fault(after, "stale-table", says, error=error)]
    return [check, right(after, "results are as before")]


def check_autocast(target: Target) -> list[Check]:
    """Check that an ambient autocast to bfloat16 leaves angles as exact as they are without."""
    name, (x, at, exact) = "under autocast", _coarse_and_exact(target)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            error, where = _off_by(target.fresh().rotate(x.to(torch.float32), at), exact)
    except TargetError as failure:
        return [remark(name, f"raises: {failure}")]
    if error <= COARSE:
        return [right(name, f"vectors are {where}", error=error)]
    says = f"vectors are {where}: a product of matrices makes the angles; disable autocast for it"
    return [fault(name, "half-precision-angles", says, error=error)]


def check_rounded_module(target: Target) -> list[Check]:
    """Say if `.bfloat16()` would spoil a module that is right as it is."""
    name, rounded = "module in bfloat16", target.fresh()
    holds_floats = {torch.float32, torch.float64} & target.dtypes
    if rounded.module is None or target.tables_of is not None or not holds_floats:
        return []
    rounded.module.bfloat16()
    x, at, exact = _coarse_and_exact(target)
    try:
        error, where = _off_by(rounded.rotate(x, at), exact)
    except TargetError as failure:
        return [remark(name, f"raises: {failure}")]
    if error <= COARSE:
        return [right(name, f"`.bfloat16()` leaves vectors {where}", error=error)]
    says = (
        f"after `.bfloat16()`, vectors are {where}: it rounds what angles are made of; keep that "
        f"in float32, as from_pretrained(…, dtype=torch.bfloat16) does"
    )
    return [remark(name, says, error=error)]


def _coarse_and_exact(target: Target) -> tuple[Tensor, Tensor, Tensor]:
    """Return bfloat16 vectors (1, 1, S, D), positions, and results of a first call in float32."""
    for at in (NEAR, NEAR[:256], NEAR[:64]):  # tables of images end early
        x = random(target, len(at)).to(torch.bfloat16)
        try:
            return x, at, target.fresh().rotate(x.to(torch.float32), at)
        except TargetError as error:
            failure = error
    raise failure


def _off_by(coarse: Tensor, exact: Tensor) -> tuple[float, str]:
    """Return the largest error of vectors (B, H, S, D), relative to their length, in words too."""
    off = (coarse.to(torch.float32) - exact).norm(dim=-1) / exact.norm(dim=-1)
    error, worst = off.max().item(), int(off.flatten().argmax())
    return error, f"off by {error:.3g} of their length, at position {worst:,}"
