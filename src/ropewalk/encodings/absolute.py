"""Encodings that act on embeddings: each position has a vector, added before the first layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ropewalk.encodings.interface import Encoding, StackShape


def sinusoids(positions: Tensor, width: int, theta: float = 10_000.0) -> Tensor:
    """Give sin and cos of ``position * theta^(-2i/width)`` in columns 2i and 2i+1.

    positions ``(...)`` integer; result ``(..., width)`` float32, formed in float64.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
    angles = positions[..., None].to(torch.float64) * theta**-exponents
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :width].float()


class Sinusoidal(Encoding):
    """Add fixed sines and cosines of the position.

    Acts on embeddings; absolute; no parameters; any position; keys can be cached.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.
    """

    def __init__(self, shape: StackShape, theta: float = 10_000.0) -> None:
        super().__init__()
        if type(theta) not in (int, float) or not 0 < theta < math.inf:
            raise ValueError(
                f"theta must be finite and above 0, got {theta!r}; the paper has 10000"
            )
        self.theta = theta

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids(positions, x.shape[-1], self.theta).to(x.dtype)


class Learned(Encoding):
    """Add a trained vector for each position.

    Acts on embeddings; absolute; ``longest * width`` parameters; refuses positions from ``longest``
    on. Source: Gehring et al. 2017, arXiv 1705.03122, section 3.1.
    """

    longest: int

    def __init__(self, shape: StackShape, longest: int = 512) -> None:
        super().__init__()
        if type(longest) is not int or longest < 1:
            raise ValueError(f"longest must be an int of at least 1, got {longest!r}")
        self.longest = longest
        self.table = nn.Embedding(longest, shape.width)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self._check(positions)
        rows: Tensor = self.table(positions)
        return x + rows.to(x.dtype)

    def _check(self, positions: Tensor) -> None:
        if positions.numel() == 0:
            return
        first, last = int(positions.min()), int(positions.max())
        if last >= self.longest:
            raise ValueError(
                f"positions must lie in 0..{self.longest - 1}, the rows of this learned table, got "
                f"{last}; train with learned(longest={last + 1}) or more, shorten the input, or "
                f"choose an encoding without a table"
            )
        if first < 0:
            raise ValueError(f"positions must be at least 0, where this table starts, got {first}")
