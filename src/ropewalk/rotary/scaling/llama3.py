"""Llama 3.1's rule: divide slow pairs, leave fast ones, blend those between."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ropewalk.checks import check_factor, check_int, named_fields
from ropewalk.rotary.frequencies import pi
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class Llama3(Scaling):
    """Slow pairs divided by s, fast ones unchanged, those between blended smoothly (Llama 3.1).

    With the wavelength l_i = 2π / f_i: f_i if l_i < L / high_freq_factor; f_i / s if
    l_i > L / low_freq_factor; between them, with w = (L / l_i - low) / (high - low),

        f_i' = (1 - w) · f_i / s + w · f_i.

    Source: meta-llama/llama-models, `apply_scaling`. In config.json:
    `rope_type` "llama3" with `factor`, `low_freq_factor`, `high_freq_factor`,
    `original_max_position_embeddings`.
    Trap: if both factors are equal (Llama 4 Scout has 1 and 1), there is nothing to blend, and the
    formula as published divides 0 by 0.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> llama = RotarySpec(head_dim=128, theta=500000.0)  # Llama 3; 3.1 adds the rule
        >>> rule = scaling.Llama3(8.0, 1.0, 4.0, original_length=8192)
        >>> longer = RotarySpec(head_dim=128, theta=500000.0, scaling=rule)
        >>> slower = longer.wavelengths() / llama.wavelengths()
        >>> [round(slower[pair].item(), 1) for pair in (0, 28, 30, 34, 36, 63)]
        [1.0, 1.0, 1.6, 5.3, 8.0, 8.0]
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
