"""Llama 3.1's rule: slow pairs are divided, fast ones are not, smoothly between."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ropewalk.checks import check_factor, check_int, named_fields
from ropewalk.rotary.frequencies import pi
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class Llama3(Scaling):
    """Divide slow pairs by s, leave fast ones, blend smoothly between (Llama 3.1).

    With the wavelength l_i = 2π / f_i: f_i where l_i < L / high_freq_factor; f_i / s where
    l_i > L / low_freq_factor; between, with w = (L / l_i - low) / (high - low),

        f_i' = (1 - w) · f_i / s + w · f_i.

    Source: meta-llama/llama-models, `apply_scaling`. In config.json:
    `rope_type` "llama3" with `factor`, `low_freq_factor`, `high_freq_factor`,
    `original_max_position_embeddings`.
    Trap: where both factors are equal (Llama 4 Scout has 1 and 1) there is nothing to blend, and
    the formula as it stands divides 0 by 0.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_length: int

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor"):
            check_factor(name, getattr(self, name))
        check_int("original_length", self.original_length, 1)
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor must be at least low_freq_factor={self.low_freq_factor}, "
                f"got {self.high_freq_factor}"
            )

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        low, high = Decimal(self.low_freq_factor), Decimal(self.high_freq_factor)
        two_pi, scaled = 2 * pi(), []
        for f in rope.frequencies():
            rotations = self.original_length * f / two_pi  # within L
            if rotations > high:
                w = Decimal(1)
            elif rotations < low:
                w = Decimal(0)
            else:
                w = Decimal(1) if low == high else (rotations - low) / (high - low)
            scaled.append((1 - w) * f / Decimal(self.factor) + w * f)
        return scaled
