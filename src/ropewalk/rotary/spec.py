"""What one rope is, as data."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from ropewalk.rotary import frequencies

Pairing = Literal["half", "interleaved"]
"""Which two of the R turning dimensions make pair i.

`half`: i and i + R/2 (GPT-NeoX, Llama as transformers has it). `interleaved`: 2i and 2i + 1
(RoFormer, GPT-J, Llama as Meta published it).
"""


@dataclass(frozen=True)
class RotarySpec:
    """All there is to say about one rope: which dimensions of a head turn together, and how fast.

    Of the R/2 pairs, pair i turns by theta^(-2i/R) radians per position (RoFormer, arXiv
    2104.09864, eq. 15).

    head_dim: D, the size of one attention head.
    rotary_dim: R, how many of its dimensions turn, the leading ones: even, at most D. None: all.
    theta: base of the frequencies, taken as the exact binary64 number.
    pairing: `half` or `interleaved`, see `Pairing`.

    Raises TypeError or ValueError that names the argument, the rule and the value.
    """

    head_dim: int
    # Any lets None in: construction makes it head_dim, and whoever reads the field finds an int.
    rotary_dim: int | Any = None
    theta: float = 10_000.0
    pairing: Pairing = "half"

    def __post_init__(self) -> None:
        _check_count("head_dim", self.head_dim)
        if self.rotary_dim is None:
            if self.head_dim % 2:
                raise ValueError(
                    f"head_dim must be even where all of it turns, got {self.head_dim}; "
                    f"set rotary_dim={self.head_dim - 1} to leave the last dimension unturned"
                )
            object.__setattr__(self, "rotary_dim", self.head_dim)
        _check_rotary_dim(self.rotary_dim, self.head_dim)
        _check_theta(self.theta)
        object.__setattr__(self, "theta", float(self.theta))
        if self.pairing not in get_args(Pairing):
            raise ValueError(
                f'pairing must be "half" (dimensions i and i + R/2 turn together) or "interleaved" '
                f"(2i and 2i + 1), got {self.pairing!r}"
            )

    def inverse_frequencies(self) -> Tensor:
        """Radians per position of each pair, float64 (R/2,)."""
        return frequencies.inverse_frequencies(self.rotary_dim, self.theta)

    def wavelengths(self) -> Tensor:
        """Positions per full turn of each pair, float64 (R/2,)."""
        return 2 * math.pi / self.inverse_frequencies()


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}")
    if value < 2:
        raise ValueError(f"{name} must be at least 2, one pair of dimensions, got {value}")


def _check_rotary_dim(rotary_dim: int, head_dim: int) -> None:
    _check_count("rotary_dim", rotary_dim)
    if rotary_dim % 2:
        raise ValueError(
            f"rotary_dim must be even, since dimensions turn in pairs, got {rotary_dim}; "
            f"use {rotary_dim - 1} or {rotary_dim + 1}"
        )
    if rotary_dim > head_dim:
        raise ValueError(
            f"rotary_dim must be at most head_dim={head_dim}, got {rotary_dim}; "
            f"leave it out to turn every dimension"
        )


def _check_theta(theta: object) -> None:
    if not isinstance(theta, (int, float)) or isinstance(theta, bool):
        raise TypeError(f"theta must be a float, got {theta!r} of type {type(theta).__name__}")
    if not 0 < theta <= sys.float_info.max:
        raise ValueError(f"theta must be finite and above 0, got {theta}; most models use 10000.0")
