"""p-RoPE: only the fastest pairs rotate."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ropewalk.checks import check_factor, named_fields
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class Proportional(Scaling):
    """p-RoPE: the fastest pairs rotate, optionally slowed by s; the others do not rotate.

    f_i / s for i < k, else 0, with k = int(p · R / 2) and the exponents 2i/R of the full width.
    Source: Barbero et al. 2024, arXiv 2410.06205; Gemma 4. In config.json: `rope_type`
    "proportional" with `partial_rotary_factor` (p) and `factor`.
    Trap: it is not partial rotary, which rotates the leading dimensions with exponents 2i/(pD):
    here dimension i is paired with i + R/2 of the full width.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.Proportional(0.5))
        >>> spec.inverse_frequencies().tolist()
        [1.0, 0.1, 0.0, 0.0]
    """

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_factor("fraction", self.fraction)
        check_factor("factor", self.factor)
        if self.fraction > 1:
            raise ValueError(f"fraction must be at most 1, all pairs, got {self.fraction}")

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        rotating = int(self.fraction * rope.rotary_dim // 2)
        if not rotating:
            raise ValueError(
                f"fraction must leave at least one pair to rotate, got {self.fraction} of "
                f"{rope.rotary_dim // 2} pairs"
            )
        plain = rope.frequencies()
        slowed = [f / Decimal(self.factor) for f in plain[:rotating]]
        return slowed + [Decimal(0)] * (len(plain) - rotating)
