"""LongRoPE: a searched divisor for every pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from ropewalk.checks import check_factor, check_int, named_fields, shown
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class LongRoPE(Scaling):
    """A searched divisor for every pair: one list up to the original length, another beyond it.

    f_i / short_factor[i] if n ≤ L, f_i / long_factor[i] if n > L. amplitude: `short_mscale` or
    `long_mscale` if given; else `attention_factor`; else sqrt(1 + ln s / ln L) (1 if s ≤ 1).
    Source: Ding et al. 2024, arXiv 2402.13753, and Phi-3's modeling_phi3.py. In config.json:
    `rope_type` "longrope" (first "su") with `short_factor`, `long_factor`, `factor` (else
    `max_position_embeddings` / L), `attention_factor`; L is
    `original_max_position_embeddings`, in Phi-3 at the top level.
    Traps: crossing L makes all cached keys wrong (`rerotate` moves them); a server that takes the
    long list whenever its limit exceeds L serves short prompts differently.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> rule = scaling.LongRoPE((1.0, 1.0), (1.0, 8.0), original_length=4096, factor=32.0)
        >>> spec = RotarySpec(head_dim=4, scaling=rule)
        >>> [round(positions) for positions in spec.wavelengths(length=4096).tolist()]
        [6, 628]
        >>> [round(positions) for positions in spec.wavelengths(length=4097).tolist()]
        [6, 5027]
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_length: int
    factor: float = 1.0
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("short_factor", "long_factor"):
            values = getattr(self, name)
            if not isinstance(values, (list, tuple)):
                raise TypeError(f"{name} must be a tuple of floats, got {shown(values)}")
            for i, value in enumerate(values):
                check_factor(f"{name}[{i}]", value)
            object.__setattr__(self, name, tuple(float(v) for v in values))
        if len(self.short_factor) != len(self.long_factor):
            raise ValueError(
                f"long_factor must have as many entries as short_factor, "
                f"{len(self.short_factor)}, got {len(self.long_factor)}"
            )
        check_int("original_length", self.original_length, 2)
        check_factor("factor", self.factor)
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if getattr(self, name) is not None:
                check_factor(name, getattr(self, name))

    def length_key(self, length: int | None) -> int | None:
        assert length is not None
        return self.original_length + 1 if length > self.original_length else 1

    def possible_lengths(self) -> tuple[int | None, ...]:
        return 1, self.original_length + 1

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        name = "long_factor" if self._is_long(length) else "short_factor"
        divisors: Sequence[float] = getattr(self, name)
        plain = rope.frequencies()
        if len(divisors) != len(plain):
            raise ValueError(
                f"{name} must have an entry for each of {len(plain)} pairs, got {len(divisors)}"
            )
        return [f / Decimal(divisor) for f, divisor in zip(plain, divisors, strict=True)]

    def amplitude(self, length: int | None) -> float:
        chosen = self.long_mscale if self._is_long(length) else self.short_mscale
        for given in (chosen, self.attention_factor):
            if given is not None:
                return float(given)
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))

    def _is_long(self, length: int | None) -> bool:
        assert length is not None
        return length > self.original_length
