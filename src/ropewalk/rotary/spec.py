"""`RotarySpec`: one rope, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import torch
from torch import SymInt, Tensor

from ropewalk.checks import (
    LARGEST,
    check_amplitude,
    check_bool,
    check_int,
    check_number,
    named_fields,
    shown,
)
from ropewalk.rotary import axes, frequencies
from ropewalk.rotary.axes import check_axes
from ropewalk.rotary.frequencies import Axes
from ropewalk.rotary.pairing import Pairing, check_blocks, check_pairing
from ropewalk.rotary.scaling import Proportional, Scaling, UnscaledRope

__all__ = ["Axes", "Pairing", "RotarySpec", "check_pairing"]

MAX_HEAD_DIM = 2 * axes.MAX_PAIRS

#: Names that other code uses for the fields of a spec.
ELSEWHERE = {"base": "theta", "rope_theta": "theta", "dim": "rotary_dim"}


@named_fields(ELSEWHERE)
@dataclass(frozen=True, repr=False)
class RotarySpec:
    """Description of one rope: which dimensions of a head rotate together, and how fast.

    Pair i of the R/2 pairs rotates by theta^(-2i/R) radians per position (RoFormer, arXiv
    2104.09864, eq. 15), unless `axes` or `scaling` say otherwise.

    head_dim: D, the size of one attention head.
    rotary_dim: R, how many of its dimensions rotate: even, at most D. None: all from `start` on,
        or two for each entry of `axes`.
    theta: base of the frequencies, taken as an exact binary64 number.
    pairing: `half` or `interleaved`, see `Pairing`.
    write_pairing: the pairing of the result, if it is not `pairing` (DeepSeek-V3 reads interleaved
        pairs and writes halves). None: the same as `pairing`.
    start: the first dimension that rotates. Dimensions outside [start, start + R) do not change.
    scaling: a rule of `ropewalk.scaling`, or None.
    amplitude: a factor of cos and sin, on top of the rule's own amplitude.
    reverse: rotate by -m·f_i at position m (nanochat).
    axes: (axis, exponent) of each pair, if positions have several axes or exponents are not 2i/R.
        Pair i rotates by theta^-exponent per step along its axis, or not at all if the exponent is
        None. `ropewalk.axes` makes the axes of published models.
    blocks: sizes of consecutive blocks of the R dimensions; pairs are made within each block
        (Gemma 4's vision: one block for height, one for width). None: one block, all R.
    continuous: positions are coordinates and may be floats (DINOv3). Angles are then computed in
        float64.

    Raises TypeError or ValueError that names the argument, the requirement and the value.

    Example:
        >>> from ropewalk import RotarySpec, scaling
        >>> spec = RotarySpec(head_dim=8, scaling=scaling.Linear(4.0))
        >>> [round(positions) for positions in spec.wavelengths().tolist()]
        [25, 251, 2513, 25133]
    """

    head_dim: int
    # With `| Any`, a caller may pass None, and type checkers let code use the field as an int.
    rotary_dim: int | Any = None
    theta: float = 10_000.0
    pairing: Pairing = "half"
    write_pairing: Pairing | Any = None
    start: int = 0
    scaling: Scaling | None = None
    amplitude: float = 1.0
    reverse: bool = False
    axes: Axes | Any = None
    blocks: tuple[int, ...] | Any = None
    continuous: bool = False

    def __post_init__(self) -> None:
        check_int("head_dim", self.head_dim, 2, ", one pair of dimensions")
        if self.head_dim > MAX_HEAD_DIM:
            raise ValueError(f"head_dim must be at most {MAX_HEAD_DIM:,}, got {self.head_dim}")
        check_int("start", self.start, 0)
        if self.rotary_dim is None:
            self._fill("rotary_dim", self._default_rotary_dim())
        self._check_rotary_dim()
        check_number("theta", self.theta, why="; most models use 10000.0")
        self._fill("theta", float(self.theta))
        if self.write_pairing is None:
            self._fill("write_pairing", self.pairing)
        for name in ("pairing", "write_pairing"):
            check_pairing(name, getattr(self, name))
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise TypeError(
                f"scaling must be a rule of ropewalk.scaling or None, got {shown(self.scaling)}"
            )
        check_number("amplitude", self.amplitude)
        check_amplitude("amplitude", self.amplitude)
        self._fill("amplitude", float(self.amplitude))
        check_bool("reverse", self.reverse)
        check_bool("continuous", self.continuous)
        if self.axes is not None:
            self._fill("axes", check_axes(self.axes, self.pairs))
        if self.blocks is not None:
            check_blocks(self.blocks, self.rotary_dim, self.pairing, self.write_pairing)
            self._fill("blocks", tuple(self.blocks))
        # A rule that cannot serve this rope raises here, not at the first call.
        for length in (1, LARGEST) if self.needs_length else (None,):
            self._check_sizes(length)

    @property
    def pairs(self) -> int:
        """The number of pairs, R/2."""
        return int(self.rotary_dim) // 2

    @property
    def axis_of_pair(self) -> tuple[int, ...]:
        """For each pair, the axis (coordinate of a position) that its angle depends on."""
        return (0,) * self.pairs if self.axes is None else tuple(axis for axis, _ in self.axes)

    @property
    def axis_count(self) -> int:
        """The number of axes (coordinates of a position), A."""
        return max(self.axis_of_pair) + 1

    @property
    def needs_length(self) -> bool:
        """Whether frequencies depend on the length; if so, every call must pass `length`.

        Length: the number of tokens of the complete sequence, prompt and generated.
        """
        return self.scaling is not None and self.scaling.needs_length

    def for_rotary_part(self) -> RotarySpec:
        """Return this rope for tensors of only the R dimensions that rotate.

        In multi-head latent attention (DeepSeek), the last 64 of a head's 192 dimensions rotate.
        For keys, these 64 are a separate tensor, `k_pe`, with one head shared by all query heads.
        This method returns the rope of `k_pe` and `q_pe`: head_dim is R, start is 0, all else is
        the same.
        """
        return replace(self, head_dim=self.rotary_dim, start=0)

    def __repr__(self) -> str:
        """Return a call that makes this spec, without arguments that have their default.

        Python can evaluate it if `RotarySpec`, `axes` and `scaling` are imported from ropewalk.
        """
        all_from_start = self.head_dim - self.start
        rotary_dim = all_from_start if self.axes is None else 2 * len(self.axes)
        implied = {"rotary_dim": rotary_dim, "write_pairing": self.pairing}
        written = [f"head_dim={self.head_dim}"]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            default = implied.get(field.name, field.default)
            if value == default:
                continue
            if field.name == "axes":
                value = axes.as_code(value)
            elif field.name == "scaling":
                value = f"scaling.{value!r}"
            else:
                value = repr(value)
            written.append(f"{field.name}={value}")
        return f"RotarySpec({', '.join(written)})"

    def inverse_frequencies(self, length: int | None = None) -> Tensor:
        """Return the radians per position of each pair, float64 (R/2,).

        length: tokens of the complete sequence, if the rule depends on it.
        """
        rounded = [float(f) for f in _frequencies(self, self.length_key(length))]
        return torch.tensor(rounded, dtype=torch.float64, device="cpu")

    def wavelengths(self, length: int | None = None) -> Tensor:
        """Return in how many positions each pair makes a full turn, (R/2,) float64; inf: never."""
        return 2 * math.pi / self.inverse_frequencies(length).abs()

    def amplitude_at(self, length: int | None = None) -> float:
        """Return the factor of cos and sin: the rule's amplitude times the spec's own."""
        own = 1.0 if self.scaling is None else self.scaling.amplitude(self.length_key(length))
        return self.amplitude * own

    def fixed_point_frequencies(self, length: int | None = None) -> tuple[int, ...]:
        """Return each pair's frequency as an integer, in units of 2^-64 turns per position.

        See `rotary.frequencies`.
        """
        return _fixed_point(self, self.length_key(length))

    def length_key(self, length: int | None) -> int | None:
        """Check a length; return the smallest length that gives the same frequencies.

        None if frequencies do not depend on the length.
        """
        self.check_length(length)
        if self.scaling is None or not self.scaling.needs_length:
            return None
        if length is None:
            raise ValueError(
                f"length must be given, got None: frequencies of {type(self.scaling).__name__} "
                f"depend on the length of the complete sequence; it is not guessed from positions"
            )
        return self.scaling.length_key(length)

    def check_length(self, length: object) -> None:
        """Raise unless length is None or an int of at least 1."""
        # While a model is traced, a size is a SymInt, not a number.
        if length is not None and not isinstance(length, SymInt):
            check_int("length", length, 1)

    def _fill(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _default_rotary_dim(self) -> int:
        if isinstance(self.axes, (list, tuple)):
            return 2 * len(self.axes)
        rest = self.head_dim - self.start
        if rest < 2:
            raise ValueError(
                f"start must leave at least 2 of the head_dim={self.head_dim} dimensions, "
                f"got {self.start}"
            )
        if rest % 2:
            less, start = (" - start", f" - {self.start}") if self.start else ("", "")
            raise ValueError(
                f"head_dim{less} must be even if all of it rotates, got {self.head_dim}{start}; "
                f"set rotary_dim={rest - 1} to leave the last dimension unrotated"
            )
        return rest

    def _check_rotary_dim(self) -> None:
        check_int("rotary_dim", self.rotary_dim, 2, ", one pair of dimensions")
        if self.rotary_dim % 2:
            raise ValueError(
                f"rotary_dim must be even, since dimensions rotate in pairs, "
                f"got {self.rotary_dim}; use {self.rotary_dim - 1} or {self.rotary_dim + 1}"
            )
        if self.start + self.rotary_dim > self.head_dim:
            limit = f"head_dim={self.head_dim}" + (f" - start={self.start}" * (self.start > 0))
            raise ValueError(
                f"rotary_dim must be at most {limit}, got {self.rotary_dim}; "
                f"leave it out for the default"
            )

    def _check_sizes(self, length: int | None) -> None:
        given = [name for name in ("axes", "scaling") if getattr(self, name) is not None]
        names = " and ".join(("theta", *given)) if len(given) < 2 else "theta, axes and scaling"
        try:
            sizes = [abs(f) for f in _frequencies(self, self.length_key(length))]
        except ArithmeticError:
            raise ValueError(
                f"{names} must give frequencies that can be computed, got "
                f"theta={self.theta}, scaling={shown(self.scaling)}, length={length}"
            ) from None
        if isinstance(self.scaling, Proportional) or self.axes is not None:
            sizes = [f for f in sizes if f]  # a pair of frequency 0 does not rotate, by design
        for f in (min(sizes), max(sizes)):
            if not frequencies.LEAST <= f <= frequencies.MOST:
                raise ValueError(
                    f"{names} must give frequencies between 1e-307 and 1e307 radians per position, "
                    f"so that wavelengths are finite too, got {f:.3g} with theta={self.theta}"
                )
        most = frequencies.precision(self.theta).prec - 40
        if max(sizes).adjusted() > most:
            raise ValueError(
                f"axes and scaling must give frequencies below 1e{most + 1} radians per position, "
                f"so that enough digits remain when full turns are subtracted, "
                f"got {float(max(sizes)):.3g}"
            )
        check_amplitude("amplitude times the rule's amplitude", self.amplitude_at(length))


@lru_cache(maxsize=128)
def _frequencies(spec: RotarySpec, length: int | None) -> tuple[Decimal, ...]:
    """Return the radians per position of each pair, computed with at least 60 digits."""
    with localcontext(frequencies.precision(spec.theta)):
        pairs: Axes = tuple((0, e) for e in frequencies.standard_exponents(spec.rotary_dim))
        pairs = pairs if spec.axes is None else spec.axes
        owners, exponents = zip(*((a, e) for a, e in pairs if e is not None), strict=True)
        rope = UnscaledRope(spec.theta, exponents, spec.rotary_dim, owners)
        if spec.scaling is None:
            plain = rope.frequencies()
        else:
            plain = spec.scaling.frequencies(rope, length)
            if len(plain) != len(exponents):
                raise ValueError(
                    f"scaling must give a frequency for each of {len(exponents)} pairs, "
                    f"got {len(plain)} from {shown(spec.scaling)}"
                )
        rotating = iter(-f if spec.reverse else f for f in plain)
        return tuple(Decimal(0) if e is None else next(rotating) for _, e in pairs)


@lru_cache(maxsize=128)
def _fixed_point(spec: RotarySpec, length: int | None) -> tuple[int, ...]:
    with localcontext(frequencies.precision(spec.theta)):
        return frequencies.to_fixed_point(_frequencies(spec, length))
