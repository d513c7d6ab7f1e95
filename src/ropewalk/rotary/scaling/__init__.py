"""Rules that change a rope's frequencies, mostly to serve contexts longer than it was trained for.

Each rule is a frozen class after one published source. Symbols, throughout: R rotary_dim, theta the
base, f_i = theta^(-2i/R) the frequency of pair i, s the factor, L the original length (that of
training), n the length that is being served.

A rule that depends on n takes it as an argument and keeps nothing: the result is the same whatever
was asked before, whether a prefill comes in chunks, and beside whatever else stands in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import ClassVar

from ropewalk.checks import check_bool, check_int, check_number
from ropewalk.rotary.frequencies import pi
from ropewalk.rotary.scaling.rule import Scaling, Unscaled


@dataclass(frozen=True)
class Linear(Scaling):
    """Position interpolation: f_i / s for every pair.

    Source: kaiokendev's SuperHOT; Chen et al. 2023, arXiv 2306.15595 (positions m / s, which
    is the same). In config.json: `rope_type` (earlier `type`) "linear", `factor`.
    Trap: short distances blur as well; such models are fine-tuned with the rule on.
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor)

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        return [f / Decimal(self.factor) for f in rope.frequencies()]


@dataclass(frozen=True)
class NTKAware(Scaling):
    """A larger base, so that the slowest pair slows by s and the fastest not at all.

    theta' = theta · s^(R/(R-2)); pair i then turns by f_i · s^(-2i/(R-2)).
    Source: bloc97, "NTK-Aware Scaled RoPE", 2023; formula in arXiv 2309.00071, eq. 15 and 16.
    In config.json it has no type of its own: HunYuan writes it as `type` "dynamic" with `alpha`,
    which is s here.
    Traps: R is rotary_dim, not head_dim; vLLM's "ntk" is another formula.
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor)

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        return rope.with_base_times(_ntk(Decimal(self.factor), rope.rotary_dim))


@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """`NTKAware` with an s that grows with the length n that is being served.

    theta' = theta · (s·n/L - (s - 1))^(R/(R-2)) for n > L, and theta up to L.
    Source: emozilla, "Dynamically Scaled RoPE", 2023; in transformers `rope_type` "dynamic" with
    `factor`, L being `max_position_embeddings`.
    Traps: keys turned at another n do not fit any more (`rerotate` moves them); an implementation
    that keeps the largest n seen gives results which depend on its history.
    """

    factor: float
    original_length: int
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("factor", self.factor)
        check_int("original_length", self.original_length, 1)

    def served(self, length: int | None) -> int | None:
        assert length is not None
        return max(length, self.original_length)

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        n, s = Decimal(self.served(length) or 0), Decimal(self.factor)
        grown = s * n / self.original_length - (s - 1)
        return rope.with_base_times(_ntk(grown, rope.rotary_dim))


@dataclass(frozen=True)
class YaRN(Scaling):
    """Interpolate slow pairs, leave fast ones, blend between; sharpen attention by an amplitude.

    With c(r) = R · ln(L / (2πr)) / (2 ln theta), the pair that turns r times within L:
    low = c(beta_fast), high = c(beta_slow), rounded outwards to whole pairs if `truncate`, then
    low ≥ 0 and high ≤ R - 1; g_i = clip((i - low) / (high - low), 0, 1);

        f_i' = f_i · (1 - g_i) + f_i / s · g_i.

    amplitude: `attention_factor` if given; else m(mscale) / m(mscale_all_dim) if both are given and
    not 0; else m(1), with m(k) = 1 + 0.1 · k · ln s (1 where s ≤ 1).
    Source: Peng et al. 2023, arXiv 2309.00071, eq. 17 to 22, and jquesnelle/yarn; the mscales are
    DeepSeek-V2's (modeling_deepseek.py). In config.json: `rope_type` "yarn" with `factor`,
    `original_max_position_embeddings`, `beta_fast`, `beta_slow`, `truncate`, `attention_factor`,
    `mscale`, `mscale_all_dim`.
    Traps: the paper blends over the number of turns within L, its code and all published models
    over the pair's index, as here; gpt-oss has truncate=False; high is clamped to R - 1 and not to
    R/2 - 1; mscale alone changes nothing here and in transformers; DeepSeek multiplies the softmax
    scale by m(mscale_all_dim)² besides (`LayerSpec.softmax_factor`).
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
            check_number(name, getattr(self, name))
        check_int("original_length", self.original_length, 1)
        check_bool("truncate", self.truncate)
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), zero=True)
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast must be at least beta_slow={self.beta_slow}, got {self.beta_fast}: "
                f"pairs that turn oftener than beta_fast are left as they are"
            )

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        low, high = self._band(rope)
        blended = []
        for f, exponent in zip(rope.frequencies(), rope.exponents, strict=True):
            # The pair's index in the plain order, for pairs of several axes too.
            i = Decimal(exponent.numerator) * rope.rotary_dim / (2 * exponent.denominator)
            g = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
            blended.append(f * (1 - g) + f / Decimal(self.factor) * g)
        return blended

    def _band(self, rope: Unscaled) -> tuple[Decimal, Decimal]:
        """The indices between which pairs are blended."""
        if rope.theta == 1:
            raise ValueError("theta must not be 1 for YaRN: all pairs turn alike, got 1.0")

        def index(turns: float) -> Decimal:
            wavelength = Decimal(self.original_length) / (2 * pi() * Decimal(turns))
            return rope.rotary_dim * wavelength.ln() / (2 * Decimal(rope.theta).ln())

        low, high = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            low = low.to_integral_value(ROUND_FLOOR)
            high = high.to_integral_value(ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, Decimal(rope.rotary_dim - 1))
        if high < low:
            raise ValueError(
                f"original_length and theta must leave pairs that turn between beta_slow="
                f"{self.beta_slow} and beta_fast={self.beta_fast} times within it, got "
                f"original_length={self.original_length} and theta={rope.theta}"
            )
        return low, high + Decimal("0.001") if low == high else high

    def amplitude(self, length: int | None) -> float:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return self.sharpening(self.mscale) / self.sharpening(self.mscale_all_dim)
        return self.sharpening(1.0)

    def sharpening(self, mscale: float) -> float:
        """m(mscale) of the formula above."""
        return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0


@dataclass(frozen=True)
class LongRoPE(Scaling):
    """A searched divisor for every pair: one list up to the original length, another beyond it.

    f_i / short_factor[i] where n ≤ L, f_i / long_factor[i] where n > L. amplitude: `short_mscale`
    or `long_mscale` if given; else `attention_factor`; else sqrt(1 + ln s / ln L) (1 where s ≤ 1).
    Source: Ding et al. 2024, arXiv 2402.13753, and Phi-3's modeling_phi3.py. In config.json:
    `rope_type` "longrope" (first "su") with `short_factor`, `long_factor`, `factor` (else
    `max_position_embeddings` / L), `attention_factor`; L is
    `original_max_position_embeddings`, in Phi-3 at the top level.
    Traps: crossing L makes all cached keys wrong (`rerotate` moves them); a server that takes the
    long list whenever its limit exceeds L serves short prompts differently.
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
                raise TypeError(f"{name} must be a tuple of floats, got {values!r}")
            for i, value in enumerate(values):
                check_number(f"{name}[{i}]", value)
            object.__setattr__(self, name, tuple(float(v) for v in values))
        if len(self.short_factor) != len(self.long_factor):
            raise ValueError(
                f"long_factor must have as many entries as short_factor, "
                f"{len(self.short_factor)}, got {len(self.long_factor)}"
            )
        check_int("original_length", self.original_length, 2)
        check_number("factor", self.factor)
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))

    def served(self, length: int | None) -> int | None:
        assert length is not None
        return self.original_length + 1 if length > self.original_length else 1

    def lengths(self) -> tuple[int | None, ...]:
        return 1, self.original_length + 1

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
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


@dataclass(frozen=True)
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
            check_number(name, getattr(self, name))
        check_int("original_length", self.original_length, 1)
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor must be at least low_freq_factor={self.low_freq_factor}, "
                f"got {self.high_freq_factor}"
            )

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        low, high = Decimal(self.low_freq_factor), Decimal(self.high_freq_factor)
        two_pi, scaled = 2 * pi(), []
        for f in rope.frequencies():
            turns = self.original_length * f / two_pi  # within L
            if turns > high:
                w = Decimal(1)
            elif turns < low:
                w = Decimal(0)
            else:
                w = Decimal(1) if low == high else (turns - low) / (high - low)
            scaled.append((1 - w) * f / Decimal(self.factor) + w * f)
        return scaled


@dataclass(frozen=True)
class Proportional(Scaling):
    """p-RoPE: the fastest pairs turn as ever, the rest not at all; all may be divided by s.

    f_i / s for i < k, else 0, with k = int(p · R / 2) and the exponents 2i/R of the whole width.
    Source: Barbero et al. 2024, arXiv 2410.06205; Gemma 4. In config.json: `rope_type`
    "proportional" with `partial_rotary_factor` (p) and `factor`.
    Trap: it is not partial rotary, which turns the leading dimensions with exponents 2i/(pD): here
    dimension i is paired with i + R/2 of the whole width.
    """

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction)
        check_number("factor", self.factor)
        if self.fraction > 1:
            raise ValueError(f"fraction must be at most 1, all pairs, got {self.fraction}")

    def frequencies(self, rope: Unscaled, length: int | None) -> list[Decimal]:
        turning = int(self.fraction * rope.rotary_dim // 2)
        if not turning:
            raise ValueError(
                f"fraction must leave a pair to turn, got {self.fraction} of {rope.rotary_dim // 2}"
            )
        plain = rope.frequencies()
        slowed = [f / Decimal(self.factor) for f in plain[:turning]]
        return slowed + [Decimal(0)] * (len(plain) - turning)


def _ntk(scale: Decimal, rotary_dim: int) -> Decimal:
    """scale^(R/(R-2)), what NTK-aware rules multiply theta by."""
    if rotary_dim == 2:
        raise ValueError(
            "rotary_dim must be above 2 for an NTK rule, got 2: its only pair has frequency 1, "
            "whatever the base"
        )
    return (scale.ln() * rotary_dim / (rotary_dim - 2)).exp()


RULES: tuple[type[Scaling], ...] = (
    Linear, NTKAware, DynamicNTK, YaRN, LongRoPE, Llama3, Proportional,
)  # fmt: skip

__all__ = [*(rule.__name__ for rule in RULES), "RULES", "Scaling"]
