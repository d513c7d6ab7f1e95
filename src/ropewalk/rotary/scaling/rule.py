"""`Scaling`, the base class of the rules in `ropewalk.scaling`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, cast

from ropewalk.rotary.frequencies import powers

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
    "attn_factor": "attention_factor",
    "low_freq": "low_freq_factor",
    "high_freq": "high_freq_factor",
}


@dataclass(frozen=True)
class UnscaledRope:
    """The rope that a rule changes: theta^-exponent for each pair; R is the rotary_dim."""

    theta: float
    exponents: tuple[Fraction, ...]
    rotary_dim: int

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
        """Return the least length with the same frequencies, the key of cached tables.

        None if frequencies do not depend on the length.
        """
        return None

    def possible_lengths(self) -> tuple[int | None, ...]:
        """Return all values of `length_key` if they are few, else an empty tuple."""
        return () if self.needs_length else (None,)
