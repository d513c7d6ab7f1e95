"""What encodings share that add to the scores by position alone, whatever stands there.

They are ALiBi, T5, KERPLE, FIRE and TUPE. In their formulas, i is the position of a query, j that
of a key, h a head, counted from 1, of H.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ropewalk.encodings.interface import AttentionEncoding, Placement


class ScoreBias(AttentionEncoding, ABC):
    """A site that only adds to the scores; layers that share it form its bias once a pass.

    Where a sequence is so long that its queries attend in blocks, each layer forms it by blocks.
    """

    def bias(self, placement: Placement) -> Tensor:
        return placement.memoize(self, lambda: self.form(placement))

    @abstractmethod
    def form(self, placement: Placement) -> Tensor:
        """Form the bias ``(H, S, T)``, or ``(B, H, S, T)`` where positions are batched."""


class PairBias(ScoreBias, ABC):
    """A bias so simple that a kernel can compute it pair by pair, and none need be held."""

    @abstractmethod
    def rows(self, device: torch.device) -> Tensor | None:
        """Give what ``pair`` looks up, a row for each head: ``(H, …)``; None if it is too much."""

    @abstractmethod
    def pair(self, rows: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Give the bias of a head, counted from 0, between two positions; all broadcast."""
