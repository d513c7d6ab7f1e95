"""Position interpolation: every pair slows down by the same factor."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ropewalk.checks import check_factor, named_fields
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class Linear(Scaling):
    """Position interpolation: f_i / s for every pair.

    Source: kaiokendev's SuperHOT; Chen et al. 2023, arXiv 2306.15595 (positions m / s, which
    is the same). In config.json: `rope_type` (earlier `type`) "linear", `factor`.
    Trap: short distances blur as well; such models are fine-tuned with the rule on.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.Linear(4.0))
        >>> (spec.wavelengths() / RotarySpec(head_dim=8).wavelengths()).tolist()
        [4.0, 4.0, 4.0, 4.0]
    """

    factor: float

    def __post_init__(self) -> None:
        check_factor("factor", self.factor)

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        return [f / Decimal(self.factor) for f in rope.frequencies()]
