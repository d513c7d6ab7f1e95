"""YaRN: interpolate slow pairs, keep fast ones, sharpen attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ropewalk.checks import check_bool, check_factor, check_int, named_fields
from ropewalk.rotary.frequencies import pi
from ropewalk.rotary.scaling.rule import ELSEWHERE, Scaling, UnscaledRope


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class YaRN(Scaling):
    """Slow pairs interpolated, fast ones unchanged, others blended; sharper attention.

    With L = original_length and s = factor, c(r) = R · ln(L / (2πr)) / (2 ln theta) is the pair
    that rotates r times within L.
    low = c(beta_fast), high = c(beta_slow), rounded outwards to integers if `truncate`, then
    clamped to low ≥ 0 and high ≤ R - 1; g_i = clip((i - low) / (high - low), 0, 1);

        f_i' = f_i · (1 - g_i) + f_i / s · g_i.

    amplitude: `attention_factor` if given; else m(mscale) / m(mscale_all_dim) if both are given and
    not 0; else m(1), with m(k) = 1 + 0.1 · k · ln s (1 if s ≤ 1).
    Source: Peng et al. 2023, arXiv 2309.00071, eq. 17 to 22, and jquesnelle/yarn; the mscales are
    DeepSeek-V2's (modeling_deepseek.py). In config.json: `rope_type` "yarn" with `factor`,
    `original_max_position_embeddings`, `beta_fast`, `beta_slow`, `truncate`, `attention_factor`,
    `mscale`, `mscale_all_dim`.
    Traps: the paper blends over the number of rotations within L; its code, all published models
    and this class blend over the pair's index. gpt-oss has truncate=False. high is clamped to R -
    1, not to R/2 - 1. If low to high lies wholly below 0 or above R - 1 (or theta < 1), high ends
    up below low, and g is reversed: this class raises an error, transformers does not. mscale alone
    changes nothing, here and in transformers. DeepSeek also multiplies the softmax scale by
    m(mscale_all_dim)² (`LayerSpec.softmax_factor`).

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=128, scaling=scaling.YaRN(4.0, original_length=4096))
        >>> slower = spec.wavelengths() / RotarySpec(head_dim=128).wavelengths()
        >>> [round(slower[pair].item(), 1) for pair in (0, 20, 32, 40, 46, 63)]
        [1.0, 1.0, 1.5, 2.4, 4.0, 4.0]
        >>> round(spec.amplitude_at(), 3)
        1.139
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        for name in ("factor", "beta_fast", "beta_slow"):
            check_factor(name, getattr(self, name))
        check_int("original_length", self.original_length, 1)
        check_bool("truncate", self.truncate)
        if self.attention_factor is not None:
            check_factor("attention_factor", self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                check_factor(name, getattr(self, name), zero=True)
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast must be at least beta_slow={self.beta_slow}, got {self.beta_fast}: "
                f"pairs that rotate more often than beta_fast stay unchanged, and those that "
                f"rotate less often than beta_slow are interpolated"
            )

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        low, high = self._band(rope)
        blended = []
        for f, exponent in zip(rope.frequencies(), rope.exponents, strict=True):
            # i is the index that the exponent has in a rope with one axis.
            i = Decimal(exponent.numerator) * rope.rotary_dim / (2 * exponent.denominator)
            g = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
            blended.append(f * (1 - g) + f / Decimal(self.factor) * g)
        return blended

    def _band(self, rope: UnscaledRope) -> tuple[Decimal, Decimal]:
        """Return the indices between which pairs are blended."""
        if rope.theta == 1:
            raise ValueError(
                "theta must not be 1 for YaRN, got 1.0: all pairs would rotate at one speed"
            )

        def index(rotations: float) -> Decimal:
            wavelength = Decimal(self.original_length) / (2 * pi() * Decimal(rotations))
            return rope.rotary_dim * wavelength.ln() / (2 * Decimal(rope.theta).ln())

        low, high = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            low = low.to_integral_value(ROUND_FLOOR)
            high = high.to_integral_value(ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, Decimal(rope.rotary_dim - 1))
        if high < low:
            raise ValueError(
                f"original_length and theta must be such that pairs 0 to {rope.rotary_dim - 1} "
                f"include those that make beta_fast={self.beta_fast} to beta_slow={self.beta_slow} "
                f"turns within original_length, got original_length={self.original_length} and "
                f"theta={rope.theta}: otherwise the blend is reversed, and slows fast pairs but "
                f"not slow ones (transformers does so without an error)"
            )
        return low, high + Decimal("0.001") if low == high else high

    def amplitude(self, length: int | None) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return self.sharpening(self.mscale) / self.sharpening(self.mscale_all_dim)
        return self.sharpening(1.0)

    def sharpening(self, mscale: float) -> float:
        """Return m(mscale) of the formula above."""
        return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0
