"""Functions f(k, old_positions, new_positions) that move keys which are rotated already.

A right move ends, from any old position, where a move from position 0 ends. So that one is measured
as a rope is, with an amplitude of 1 because keys have theirs, and `check_moves` compares others
with it. `RotaryEmbedding.shift` is right, and so is `rerotate` with a length that grows.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.call_form import Target
from ropewalk.tools.verify.function_checks import AT, SAME, SHORT, far, random
from ropewalk.tools.verify.verify_report import Check, fault, right

NAME = "moves"
#: Old and new positions: not at all, up, down, in another order, far down; float32 angles serve.
MOVES = ((AT + 7, AT + 7), (AT, AT + 7), (AT + 7, AT), (AT, AT.flip(0)), (AT + 4_000, AT + 100))


def spec_of_moves(spec: RotarySpec, length: int | None) -> RotarySpec:
    """Return the specification of a move: of keys as they are written, their amplitude kept."""
    original = int(getattr(spec.scaling, "original_length", 1))
    amplitude = spec.amplitude_at(length or original)
    written = spec.write_pairing
    return replace(
        spec, pairing=written, write_pairing=written, amplitude=spec.amplitude / amplitude
    )


def check_moves(target: Target) -> Check:
    """Check that moves depend on the distance alone, and name what else they depend on."""
    x, worst = random(target, SHORT), 0.0
    size = x.abs().max().item()
    for old, new in MOVES:
        wanted, cached = target.rotate(x, new), target.rotate(x, old)
        moved = replace(target, moved_from=old).rotate(cached, new)
        if far(wanted, x) <= SAME:
            stay = far(moved, cached) <= SAME
            says = "keys stay as they were" if stay else "new positions have no effect"
            return fault(NAME, "positions-ignored", says)
        error, reach = far(moved, wanted), max(int(old.max()), int(new.max()))
        if error <= size * (SAME + 4 * reach * 2.0**-23):
            worst = max(worst, error)
            continue
        if far(moved, target.rotate(cached, new)) <= SAME:
            says = "old positions have no effect: keys are rotated by the new ones on top"
            return fault(NAME, "positions-ignored", says)
        ratio = ((moved * wanted).sum() / wanted.square().sum()).item()
        if far(moved, ratio * wanted) <= 10 * SAME:
            says = f"keys are multiplied by {ratio:.6g}: the amplitude, which they have, is applied"
            return fault(NAME, "amplitude", f"{says} again", ratio=ratio)
        # More than bfloat16 explains, at near positions.
        kind = "half-precision-angles" if error <= 2.0**-6 * reach else "frequencies"
        says = f"keys moved from position {old[0]:,} to {new[0]:,} are off by {error:.3g}"
        return fault(NAME, kind, says, error=error)
    return right(NAME, f"depend on the distance alone, within {worst:.1e}", error=worst)
