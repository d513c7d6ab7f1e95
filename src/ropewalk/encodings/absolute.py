"""Encodings that act on embeddings: a vector for each position, added before the first layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ropewalk.checks import check_int, check_number, check_table, shown
from ropewalk.encodings.interface import Encoding, StackShape

POSITION_BITS = 63  # a position is an int64 that is not negative


def sinusoids(positions: Tensor, width: int, theta: float = 10_000.0) -> Tensor:
    """Return sin and cos of `position * theta^(-2i/width)` in columns 2i and 2i+1.

    positions `(...)` integer; result `(..., width)` float32, computed in float64.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    angles = positions[..., None].to(torch.float64) * theta**-exponents
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :width].float()


class Sinusoidal(Encoding):
    """Add fixed sines and cosines of the position.

    Acts on embeddings; absolute. Costs one addition per token; no parameters. Accepts any
    position. Keys can be cached.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """

    def __init__(self, shape: StackShape, theta: float = 10_000.0) -> None:
        super().__init__()
        check_number("theta", theta, why="; the paper uses 10000")
        if theta < 1e-300:
            raise ValueError(
                f"theta must be at least 1e-300, so that 1/theta is a finite float, got {theta}"
            )
        self.theta = float(theta)  # torch accepts floats of 2^63 or more, but no such ints

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids(positions, x.shape[-1], self.theta).to(x.dtype)


class Integer(Encoding):
    """Add the position m itself to every column, or m/`length` if a length is given.

    Acts on embeddings; absolute. Costs one addition per token; no parameters. Accepts any
    position. Keys can be cached.

    Tutorials start with it to show what goes wrong: m has no bound, bfloat16 has not all integers
    above 256, and with m/`length` neighbors hardly differ. Models that normalize their input
    hardly see it: LayerNorm subtracts what all columns share.
    Source: C. Fleetwood, "You could have designed state of the art positional encoding", 2024.
    """

    def __init__(self, shape: StackShape, length: int | None = None) -> None:
        super().__init__()
        if length is not None:
            check_int("length", length, 1, ", or None to add the position itself")
        self.length = length

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        numbers = positions[..., None].to(wide) / (self.length or 1)
        return x + numbers.to(x.dtype)


class Binary(Encoding):
    """Add the lowest bits of the position to the first columns: the value of bit i to column i.

    Acts on embeddings; absolute. Costs one addition per token; no parameters. Refuses positions of
    2^`bits` or more. Keys can be cached.

    Values do not show distance: 7 and 8 differ in four columns, 0 and 8 in one. Beyond the trained
    positions, a bit is set that was always 0.
    Source: C. Fleetwood, "You could have designed state of the art positional encoding", 2024.

    bits: how many. None: the width, at most 63.
    """

    def __init__(self, shape: StackShape, bits: int | None = None) -> None:
        super().__init__()
        bits = shape.width if bits is None else bits
        if type(bits) is not int or not 1 <= bits <= shape.width:
            raise ValueError(
                f"bits must be an int from 1 to width={shape.width}, one column per bit, "
                f"got {shown(bits)}"
            )
        self.bits = min(bits, POSITION_BITS)
        self.rest = shape.width - self.bits
        self.max_positions = None if self.bits == POSITION_BITS else 2**self.bits

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        _check_range(
            positions,
            2**self.bits,
            "to be written in bits",
            lambda last: (
                f"which have {self.bits} bits, got {last}; write binary(bits={last.bit_length()}) "
                f"or more (one column per bit), shorten the input, or choose another encoding"
            ),
        )
        places = torch.arange(self.bits, device=positions.device)
        bits = (positions[..., None].long() >> places) & 1
        return x + pad(bits, (0, self.rest)).to(x.dtype)


class PositionTable(nn.Embedding):
    """A vector for each position, initially N(0, 1).

    Word embeddings, after their multiplication by sqrt(width), have the same distribution.
    """


class Learned(Encoding):
    """Add a trained vector for each position.

    Acts on embeddings; absolute. Costs one addition per token; `max_positions * width` parameters.
    Refuses positions from `max_positions` on. Keys can be cached.
    Source: Gehring et al. 2017, arXiv 1705.03122, section 3.1.
    """

    max_positions: int
    trained_rows = True

    def __init__(self, shape: StackShape, max_positions: int = 512) -> None:
        super().__init__()
        check_int("max_positions", max_positions, 1)
        check_table("max_positions", max_positions, max_positions * shape.width)
        self.max_positions = max_positions
        self.table = PositionTable(max_positions, shape.width)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_rows("learned", positions, self.max_positions)
        rows: Tensor = self.table(positions)
        return x + rows.to(x.dtype)


def check_rows(name: str, positions: Tensor, max_positions: int) -> None:
    """Raise ValueError unless each position has a row in a table of `max_positions` rows."""
    _check_range(
        positions,
        max_positions,
        "the first row of this table",
        lambda last: (
            f"the rows of this {name} table, got {last}; train with "
            f"{name}(max_positions={last + 1}) or more, shorten the input, or choose an encoding "
            f"without a table"
        ),
    )


def _check_range(positions: Tensor, count: int, lowest: str, highest: Callable[[int], str]) -> None:
    """Raise ValueError unless positions are in 0..count - 1; lowest, highest: words on the ends.

    In a compiled or exported model, the error is a RuntimeError at run time.
    """
    if torch.compiler.is_compiling():
        fits = ((positions >= 0) & (positions <= count - 1)).all()
        torch._assert_async(fits, f"positions must lie in 0..{count - 1}")
    elif positions.numel():
        first, last = int(positions.min()), int(positions.max())
        if last >= count:
            raise ValueError(f"positions must lie in 0..{count - 1}, {highest(last)}")
        if first < 0:
            raise ValueError(f"positions must be at least 0, {lowest}, got {first}")
