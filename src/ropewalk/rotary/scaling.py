"""Rules that change a rope's frequencies, mostly to serve contexts longer than the trained length.

Each rule is a frozen class that follows one published source. Symbols in all of them: R is
rotary_dim, theta the base, f_i = theta^(-2i/R) the frequency of pair i, s the factor, L the
original length (that of training), n the length served.

A rule that depends on n takes it as an argument and has no state. The result does not depend on
earlier calls, on the chunks of a prefill, or on the other sequences of a batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, dataclass_transform

from ropewalk.checks import check_bool, check_factor, check_int, named_fields, shown
from ropewalk.rotary.frequencies import pi, powers

__all__ = [
    "RULES",
    "DynamicNTK",
    "Linear",
    "Llama3",
    "LongRoPE",
    "MixedNTK",
    "NTKAware",
    "PerAxis",
    "Proportional",
    "QwenNTK",
    "Scaling",
    "YaRN",
]

T = TypeVar("T")

#: The names that config.json and other code have for the fields of rules.
ELSEWHERE = {
    "alpha": "factor",
    "scale": "factor",
    "scaling_factor": "factor",
    "rope_factor": "factor",
    "partial_rotary_factor": "fraction",
    "max_position_embeddings": "original_length",
    "original_max_position_embeddings": "original_length",
    "original_max_seq_len": "original_length",
    "original_seq_len": "original_length",
    "seq_length": "original_length",
    "low_freq": "low_freq_factor",
    "high_freq": "high_freq_factor",
}
#: What multiplies a rule's amplitude in other code (YaRN's repository, vLLM, SGLang, LongRoPE's),
#: and how a spec says so.
BESIDE_THE_RULE = {
    "attn_factor": "RotarySpec(…, amplitude=…), a factor on top of the rule's own amplitude"
}


class UnscaledRope(NamedTuple):
    """The rope that a rule changes: theta^-exponent for each pair; R is the rotary_dim.

    axis_of_pair: the axis of each pair, if positions have several.
    """

    theta: float
    exponents: tuple[Fraction, ...]
    rotary_dim: int
    axis_of_pair: tuple[int, ...] = ()

    def frequencies(self) -> list[Decimal]:
        """Return f_i, to the precision of the current decimal context."""
        return powers(self.theta, self.exponents)

    def with_base_times(self, factor: Decimal) -> list[Decimal]:
        """Return the frequencies of the base theta · factor."""
        logarithm = (Decimal(self.theta) * factor).ln()
        return [(-logarithm * e.numerator / e.denominator).exp() for e in self.exponents]


class Scaling(ABC):
    """A scaling rule; subclasses define `frequencies`.

    `needs_length`: whether n must be given. `amplitude`: a factor of cos and sin.

    Example:
        >>> from dataclasses import dataclass
        >>> from ropewalk import RotarySpec, scaling
        >>> @dataclass(frozen=True, repr=False)
        ... class Slower(scaling.Scaling):
        ...     factor: int
        ...     def frequencies(self, rope, length):
        ...         return [f / self.factor for f in rope.frequencies()]
        >>> RotarySpec(head_dim=8, scaling=Slower(2)).inverse_frequencies().tolist()
        [0.5, 0.05, 0.005, 0.0005]
    """

    needs_length: ClassVar[bool] = False

    # Here for all rules: each dataclass would compile its own at import, which takes longer.
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        """Return a call that makes the rule, without arguments that have their default."""
        own = {field.name: field.default for field in fields(cast(Any, self))}
        given = [(name, getattr(self, name)) for name in own]
        written = [f"{name}={value!r}" for name, value in given if value != own[name]]
        return f"{type(self).__name__}({', '.join(written)})"

    @abstractmethod
    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        """Return the frequency of each pair, in radians per position."""

    def amplitude(self, length: int | None) -> float:
        """Return the factor of cos and sin; scores of rotated q and k grow by its square."""
        return 1.0

    def length_key(self, length: int | None) -> int | None:
        """Return a length that stands for all with the same frequencies, the key of cached tables.

        None if frequencies do not depend on the length.
        """
        return None

    def possible_lengths(self) -> tuple[int | None, ...]:
        """Return all values of `length_key` if they are few, else an empty tuple."""
        return () if self.needs_length else (None,)


@dataclass_transform(frozen_default=True)
def _rule(cls: type[T]) -> type[T]:
    """Make a class a rule: a frozen dataclass, which tells its names for others' fields."""
    return named_fields(ELSEWHERE, beside=BESIDE_THE_RULE)(
        dataclass(frozen=True, repr=False, eq=False)(cls)
    )


@_rule
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


@_rule
class NTKAware(Scaling):
    """A larger base: the slowest pair slows down by s, the fastest not at all.

    theta' = theta · s^(R/(R-2)); pair i then rotates by f_i · s^(-2i/(R-2)).
    Source: bloc97, "NTK-Aware Scaled RoPE", 2023; formula in arXiv 2309.00071, eq. 15 and 16.
    In config.json it has no type of its own: HunYuan writes it as `type` "dynamic" with `alpha`,
    which is s here.
    Traps: R is rotary_dim, not head_dim; vLLM's "ntk" is `MixedNTK`.

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


@_rule
class MixedNTK(Scaling):
    """Every pair slows down, the slowest by s: f_i · exp(-a · (i + 1)^b) with a = ln s / (R/2)^b.

    With b = 1, pair i rotates by f_i · s^(-2(i+1)/R), which vLLM calls "ntk" too.
    Source: Su 2023, kexue.fm/archives/9706, eq. 6 and 10 to 13 (NTK-RoPE-fixed and -mixed);
    Alibaba-NLP/new-impl, modeling.py (GTE); vLLM, rotary_embedding/ntk_scaling_rope.py. In
    config.json: `type` "ntk" with `factor` and, if it is not 1, `mixed_b`.
    Traps: `NTKAware` leaves the fastest pair as it is, this rule does not; GTE's own code and vLLM
    read this type, transformers does not know it.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.MixedNTK(4.0))
        >>> slower = spec.wavelengths() / RotarySpec(head_dim=8).wavelengths()
        >>> [round(times, 2) for times in slower.tolist()]
        [1.41, 2.0, 2.83, 4.0]
    """

    factor: float
    mixed_b: float = 1.0

    def __post_init__(self) -> None:
        check_factor("factor", self.factor)
        check_factor("mixed_b", self.mixed_b)

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        s, b, half = Decimal(self.factor), Decimal(self.mixed_b), Decimal(rope.rotary_dim) / 2
        slowed = []
        for f, exponent in zip(rope.frequencies(), rope.exponents, strict=True):
            place = Decimal(exponent.numerator) * half / exponent.denominator + 1  # i + 1
            slowed.append(f * (-s.ln() * (place / half) ** b).exp())
        return slowed


@_rule
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


@_rule
class QwenNTK(Scaling):
    """`NTKAware` with an s that doubles with the length n: the dynamic rule of Qwen-1.

    s = 2^(k+1) - 1 with the least k of n ≤ 2^k · L: 1 up to L, 3 up to 2L, 7 up to 4L, …
    Source: Qwen/Qwen-7B, modeling_qwen.py, `get_ntk_alpha`; Bai et al. 2023, arXiv 2309.16609,
    section 2.3. In config.json: `use_dynamic_ntk` with `seq_length` (L), not in the rope's fields.
    Trap: its code keeps the s of the prompt while it decodes, so n is the length of the prompt.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.QwenNTK(original_length=8192))
        >>> for length in (8192, 8193, 16384, 16385):
        ...     print([round(positions) for positions in spec.wavelengths(length).tolist()])
        [6, 63, 628, 6283]
        [6, 91, 1307, 18850]
        [6, 91, 1307, 18850]
        [6, 120, 2299, 43982]
    """

    original_length: int
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_int("original_length", self.original_length, 1)

    def _doublings(self, length: int | None) -> int:
        assert length is not None
        return ((max(length, 1) - 1) // self.original_length).bit_length()

    def length_key(self, length: int | None) -> int | None:
        k = self._doublings(length)
        return (self.original_length << (k - 1)) + 1 if k else 1

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        s = 2 ** (self._doublings(length) + 1) - 1
        return rope.with_base_times(_ntk(Decimal(s), rope.rotary_dim))


def _ntk(scale: Decimal, rotary_dim: int) -> Decimal:
    """Return scale^(R/(R-2)), the factor of theta in NTK-aware rules."""
    if rotary_dim == 2:
        raise ValueError(
            "rotary_dim must be above 2 for an NTK rule, got 2: its only pair has frequency 1, "
            "whatever the base is"
        )
    return (scale.ln() * rotary_dim / (rotary_dim - 2)).exp()


@_rule
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
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                check_factor(name, getattr(self, name), zero=name != "attention_factor")
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


@_rule
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
        name = "short_factor" if self.length_key(length) == 1 else "long_factor"
        divisors: Sequence[float] = getattr(self, name)
        plain = rope.frequencies()
        if len(divisors) != len(plain):
            raise ValueError(
                f"{name} must have an entry for each of {len(plain)} pairs, got {len(divisors)}"
            )
        return [f / Decimal(divisor) for f, divisor in zip(plain, divisors, strict=True)]

    def amplitude(self, length: int | None) -> float:
        chosen = self.short_mscale if self.length_key(length) == 1 else self.long_mscale
        for given in (chosen, self.attention_factor):
            if given is not None:
                return float(given)
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))


@_rule
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
            if low == high:
                w = Decimal(int(rotations >= high))
            else:
                w = min(max((rotations - low) / (high - low), Decimal(0)), Decimal(1))
            scaled.append((1 - w) * f / Decimal(self.factor) + w * f)
        return scaled


@_rule
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


@_rule
class PerAxis(Scaling):
    """A rule for each axis of positions, or None: its pairs count as a rope of their own.

    In a rule, R is then twice the number of the axis's pairs, and L counts steps along the axis.
    Source: NVIDIA's Cosmos, `VideoRopePosition3DEmb` (NTK-aware, 2, 1 and 1); CineScale, arXiv
    2508.15774 (NTK-aware, 1, 20 and 20); Kandinsky 5 and 6, `scale_factor` (linear).
    Trap: NTK-aware by R of the full head gives other frequencies.

    Example:
        >>> from ropewalk import RotarySpec, axes, scaling
        >>> rule = scaling.PerAxis((None, scaling.NTKAware(20.0), scaling.NTKAware(20.0)))
        >>> wan = RotarySpec(128, axes=axes.axial((22, 21, 21)), scaling=rule)
        >>> slower = wan.wavelengths() / RotarySpec(128, axes=wan.axes).wavelengths()
        >>> [round(slower[pair].item(), 1) for pair in (0, 21, 22, 42, 43, 63)]
        [1.0, 1.0, 1.0, 20.0, 1.0, 20.0]
    """

    rules: tuple[Scaling | None, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rules, (list, tuple)) or not self.rules:
            raise TypeError(
                f"rules must be a tuple of a rule for each axis, got {shown(self.rules)}"
            )
        object.__setattr__(self, "rules", tuple(self.rules))
        for rule in self.rules:
            plain = isinstance(rule, Scaling) and not isinstance(rule, PerAxis)
            if rule is not None and (not plain or rule.needs_length):
                raise TypeError(
                    f"rules must each be None or a rule that does not depend on the length, "
                    f"since axes have lengths of their own, got {shown(rule)}"
                )
        amplitudes = {1.0 if rule is None else rule.amplitude(None) for rule in self.rules}
        if len(amplitudes) > 1:
            raise ValueError(
                f"rules must have one amplitude, got {sorted(amplitudes)}; set attention_factor in "
                f"each YaRN, or to 1 and amplitude in RotarySpec"
            )

    def __repr__(self) -> str:
        given = [repr(rule) if rule is None else f"scaling.{rule!r}" for rule in self.rules]
        return f"PerAxis(({', '.join(given)}{',' * (len(given) == 1)}))"

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        count = max(rope.axis_of_pair) + 1
        if len(self.rules) != count:
            raise ValueError(
                f"rules must have one rule for each of {count} axes, got {len(self.rules)}"
            )
        scaled: dict[int, Decimal] = {}
        for axis, rule in enumerate(self.rules):
            own = [i for i, owner in enumerate(rope.axis_of_pair) if owner == axis]
            exponents = tuple(rope.exponents[i] for i in own)
            part = UnscaledRope(rope.theta, exponents, 2 * len(own))
            new = part.frequencies() if rule is None else rule.frequencies(part, None)
            scaled |= zip(own, new, strict=True)
        return [scaled[i] for i in range(len(rope.exponents))]

    def amplitude(self, length: int | None) -> float:
        return max(1.0 if rule is None else rule.amplitude(None) for rule in self.rules)


RULES: tuple[type[Scaling], ...] = (
    Linear, NTKAware, MixedNTK, DynamicNTK, QwenNTK, YaRN, LongRoPE, Llama3, Proportional,
)  # fmt: skip
