"""Shared code of the encodings that add to the scores by position alone.

They are ALiBi, T5, KERPLE, FIRE and TUPE. In their formulas, i is the position of a query, j the
position of a key, and h a head, counted from 1 to H.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ropewalk.encodings.interface import AttentionEncoding, Placement


class ScoreBias(AttentionEncoding, ABC):
    """A site that only adds to the scores; the layers that share it compute its bias once per pass.

    If a sequence is so long that its queries attend in blocks, each layer computes it by blocks.
    """

    def bias(self, placement: Placement) -> Tensor:
        return placement.memoize(self, lambda: self.form(placement))

    @abstractmethod
    def form(self, placement: Placement) -> Tensor:
        """Return the bias `(H, S, T)`, or `(B, H, S, T)` if positions are batched."""


class PairBias(ScoreBias, ABC):
    """A bias so simple that a kernel can compute it for each pair, without storing it."""

    @abstractmethod
    def rows(self, device: torch.device) -> Tensor | None:
        """Return what `pair` looks up, a row per head: `(H, …)`; or None if it is too large."""

    @abstractmethod
    def pair(self, rows: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the bias of a head, counted from 0, between two positions; all broadcast."""
