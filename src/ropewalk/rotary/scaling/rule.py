"""What a scaling rule is: the rules themselves are in `ropewalk.scaling`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, cast

from ropewalk.rotary.frequencies import powers

#: The fields of all rules, by the names that config.json and other code have for them.
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
    """What a rule starts from: theta^-exponent for each pair; R is the rotary_dim."""

    theta: float
    exponents: tuple[Fraction, ...]
    rotary_dim: int

    def frequencies(self) -> list[Decimal]:
        """f_i, to the precision of the current decimal context."""
        return powers(self.theta, self.exponents)

    def with_base_times(self, factor: Decimal) -> list[Decimal]:
        """The frequencies of the base theta · factor."""
        logarithm = (Decimal(self.theta) * factor).ln()
        return [(-logarithm * e.numerator / e.denominator).exp() for e in self.exponents]


class Scaling(ABC):
    """A rule. `needs_length` says that n must be given; `amplitude` multiplies cos and sin."""

    needs_length: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Write the rule as a call that makes it: what differs from the defaults."""
        own = {field.name: field.default for field in fields(cast(Any, self))}
        given = [(name, getattr(self, name)) for name in own]
        said = [f"{name}={value!r}" for name, value in given if value != own[name]]
        return f"{type(self).__name__}({', '.join(said)})"

    @abstractmethod
    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        """The frequency of each pair, in radians per position."""

    def amplitude(self, length: int | None) -> float:
        """What cos and sin are multiplied by; scores of rotated q and k grow by its square."""
        return 1.0

    def length_key(self, length: int | None) -> int | None:
        """Return the least length with the same frequencies, under which tables are kept.

        None where frequencies do not depend on the length.
        """
        return None

    def possible_lengths(self) -> tuple[int | None, ...]:
        """Return all values that `length_key` can have, where they are few; else none."""
        return () if self.needs_length else (None,)
