"""NTK-aware rules: a larger base, fixed or growing with the length."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from ropewalk.checks import check_factor, check_int, named_fields
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class NTKAware(Scaling):
    """A larger base: the slowest pair slows down by s, the fastest not at all.

    theta' = theta · s^(R/(R-2)); pair i then rotates by f_i · s^(-2i/(R-2)).
    Source: bloc97, "NTK-Aware Scaled RoPE", 2023; formula in arXiv 2309.00071, eq. 15 and 16.
    In config.json it has no type of its own: HunYuan writes it as `type` "dynamic" with `alpha`,
    which is s here.
    Traps: R is rotary_dim, not head_dim; vLLM's "ntk" is another formula.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.NTKAware(4.0))
        >>> slower = spec.wavelengths() / RotarySpec(head_dim=8).wavelengths()
        >>> [round(times, 2) for times in slower.tolist()]
        [1.0, 1.59, 2.52, 4.0]
    """

    factor: float

    def __post_init__(self) -> None:
        check_factor("factor", self.factor)

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        return rope.with_base_times(_ntk(Decimal(self.factor), rope.rotary_dim))

    def larger_theta(self, theta: float, rotary_dim: int) -> float:
        """Return theta': a rope with theta' and no rule is the same as with theta and this rule."""
        return float(Decimal(theta) * _ntk(Decimal(self.factor), rotary_dim))


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class DynamicNTK(Scaling):
    """`NTKAware` with an s that grows with the length n.

    theta' = theta · (s·n/L - (s - 1))^(R/(R-2)) for n > L, and theta up to L.
    Source: emozilla, "Dynamically Scaled RoPE", 2023; in transformers `rope_type` "dynamic" with
    `factor`; L is `max_position_embeddings`.
    Traps: keys that were rotated at another n become wrong (`rerotate` moves them); the results of
    an implementation that remembers the largest n depend on its history.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> rule = scaling.DynamicNTK(2.0, original_length=4096)
        >>> spec = RotarySpec(head_dim=8, scaling=rule)
        >>> for length in (4096, 8192, 16384):
        ...     print([round(positions) for positions in spec.wavelengths(length).tolist()])
        [6, 63, 628, 6283]
        [6, 91, 1307, 18850]
        [6, 120, 2299, 43982]
    """

    factor: float
    original_length: int
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_factor("factor", self.factor)
        check_int("original_length", self.original_length, 1)

    def length_key(self, length: int | None) -> int | None:
        assert length is not None
        return max(length, self.original_length)

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        n, s = Decimal(self.length_key(length) or 0), Decimal(self.factor)
        grown = s * n / self.original_length - (s - 1)
        return rope.with_base_times(_ntk(grown, rope.rotary_dim))


def _ntk(scale: Decimal, rotary_dim: int) -> Decimal:
    """Return scale^(R/(R-2)), the factor of theta in NTK-aware rules."""
    if rotary_dim == 2:
        raise ValueError(
            "rotary_dim must be above 2 for an NTK rule, got 2: its only pair has frequency 1, "
            "whatever the base is"
        )
    return (scale.ln() * rotary_dim / (rotary_dim - 2)).exp()
