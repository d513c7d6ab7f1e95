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
    """A larger base, so that the slowest pair slows by s and the fastest not at all.

    theta' = theta · s^(R/(R-2)); pair i then rotates by f_i · s^(-2i/(R-2)).
    Source: bloc97, "NTK-Aware Scaled RoPE", 2023; formula in arXiv 2309.00071, eq. 15 and 16.
    In config.json it has no type of its own: HunYuan writes it as `type` "dynamic" with `alpha`,
    which is s here.
    Traps: R is rotary_dim, not head_dim; vLLM's "ntk" is another formula.
    """

    factor: float

    def __post_init__(self) -> None:
        check_factor("factor", self.factor)

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        return rope.with_base_times(_ntk(Decimal(self.factor), rope.rotary_dim))


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class DynamicNTK(Scaling):
    """`NTKAware` with an s that grows with the length n that is being served.

    theta' = theta · (s·n/L - (s - 1))^(R/(R-2)) for n > L, and theta up to L.
    Source: emozilla, "Dynamically Scaled RoPE", 2023; in transformers `rope_type` "dynamic" with
    `factor`, L being `max_position_embeddings`.
    Traps: keys rotated at another n do not fit any more (`rerotate` moves them); an implementation
    that keeps the largest n seen gives results which depend on its history.
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
    """scale^(R/(R-2)), what NTK-aware rules multiply theta by."""
    if rotary_dim == 2:
        raise ValueError(
            "rotary_dim must be above 2 for an NTK rule, got 2: its only pair has frequency 1, "
            "whatever the base"
        )
    return (scale.ln() * rotary_dim / (rotary_dim - 2)).exp()
