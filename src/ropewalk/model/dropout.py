"""Dropout with cheap random bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each element with probability p and scale the rest by 1/(1 - p).

    p is exact to within 2^-16. Each random 64-bit draw decides four elements: torch's own dropout
    on CPU draws one number per element, which takes longer than the matrix product before it.
    Source: Srivastava et al. 2014, Journal of Machine Learning Research 15.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must lie in [0, 1), got {p!r}")
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * self._mask(x)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual + dropout(x)` in the residual's dtype, in one pass over both."""
        x = x.to(residual.dtype)
        if not self.training or self.p == 0:
            return residual + x
        return torch.addcmul(residual, x, self._mask(x))

    def _mask(self, x: Tensor) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
        lanes = draws.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
        lowest = min(round(self.p * 2**16), 2**16 - 1) - 2**15  # 16-bit value that is kept
        keep = lanes >= lowest
        return keep.to(x.dtype).mul_(1 / (1 - self.p))
