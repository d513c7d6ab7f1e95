"""Shared code of relative encodings.

Axes: `B` batch, `H` heads, `S` queries, `T` keys, `D` head_dim, `N` rows of a table.

No vector is ever computed for each pair of a query and a key, `(S, T, D)`. Instead, queries
(in DeBERTa also keys) are multiplied by the rows of a table once, and the product of each pair is
looked up: `(B, H, S, N)` to `(B, H, S, T)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ropewalk.encodings.interface import (
    Attended,
    AttentionEncoding,
    Encoding,
    Placement,
    StackShape,
)


class ScoringSite(AttentionEncoding, ABC):
    """The part of an encoding in one layer (a site) that computes the scores itself.

    Scores and softmax are in float32, or in float64 if q is.
    """

    attends = True
    scale: float
    name: str  # in the registry

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.heads, self.head_dim = shape.heads, shape.head_dim
        self.scale = shape.head_dim**-0.5

    @abstractmethod
    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        """Return scaled scores of all keys `(B, H, S, T)`; masked ones may be any finite number."""

    def weigh(self, p: Tensor, v: Tensor, placement: Placement) -> Tensor:
        """Sum the values `(B, H, T, D)`, weighted by their probabilities `(B, H, S, T)`."""
        return p.to(v.dtype) @ v

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        placement: Placement,
        mask: Tensor | None,
        need_probabilities: bool = False,
    ) -> Attended:
        self._check(q)
        wide = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            p = masked_softmax(self.scores(q.to(wide), k.to(wide), placement, mask), mask)
            output = self.weigh(p, v, placement)
        return Attended(output, p if need_probabilities else None)

    def _check(self, q: Tensor) -> None:
        heads, head_dim = q.shape[1], q.shape[-1]
        if (heads, head_dim) != (self.heads, self.head_dim):
            raise ValueError(
                f"attention must have the heads={self.heads} and head_dim={self.head_dim} that "
                f"this {self.name} encoding was built for, got {heads} heads of {head_dim} "
                f"dimensions"
            )


class LayerSites(Encoding):
    """An encoding with a site for each layer; sites may share parameters."""

    sites: nn.ModuleList

    def for_layer(self, layer: int) -> AttentionEncoding:
        site = self.sites[layer]
        assert isinstance(site, AttentionEncoding)
        return site


def distances(placement: Placement) -> Tensor:
    """Return j - i of queries i and keys j, int64 `(S, T)` or `(B, S, T)`; memoized."""
    return placement.memoize(
        distances, lambda: placement.keys[..., None, :] - placement.queries[..., :, None]
    )


def pick(products: Tensor, rows: Tensor) -> Tensor:
    """Return for each pair the product with its row: `(B, H, S, N)` to `(B, H, S, T)`.

    rows `(S, T)` or `(B, S, T)`: the row of each pair, in `0..N-1`.
    """
    return products.gather(-1, _for_heads(rows, products))


def sum_by_row(p: Tensor, rows: Tensor, count: int) -> Tensor:
    """Sum p `(B, H, S, T)` over the keys that share a row: `(B, H, S, count)`."""
    sums = p.new_zeros(*p.shape[:-1], count)
    return sums.scatter_add(-1, _for_heads(rows, p), p)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax over the keys that a query may look at, and exactly 0 for all others.

    A query that may not look at any key gets zeros.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    lowest = torch.finfo(scores.dtype).min  # -inf would make a row of masked keys NaN
    return torch.where(mask, torch.where(mask, scores, lowest).softmax(dim=-1), 0.0)


def _for_heads(rows: Tensor, like: Tensor) -> Tensor:
    """Expand rows `(S, T)` or `(B, S, T)` to the batch and the heads of `like`."""
    rows = rows.unsqueeze(-3)
    return rows.expand(*like.shape[:-2], *rows.shape[-2:])
