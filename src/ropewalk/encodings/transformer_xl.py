"""Transformer-XL's relative positions: content and distance scored apart, with sinusoids."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ropewalk.encodings.absolute import sinusoids
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances, pick


class TransformerXLSite(ScoringSite):
    """Score keys by their content and, apart from it, by their distance."""

    name = "transformer_xl"

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.distance = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(shape.heads, shape.head_dim))
        self.v = nn.Parameter(torch.zeros(shape.heads, shape.head_dim))

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        waves, rows = self._waves(placement)
        projected = linear(waves.to(q.dtype), self.distance.weight.to(q.dtype))  # (N, H * D)
        r: Tensor = projected.unflatten(-1, (self.heads, self.head_dim)).transpose(0, 1)
        u, v = (x.to(q.dtype).unsqueeze(1) for x in (self.u, self.v))
        return ((q + u) @ k.mT + pick((q + v) @ r.mT, rows)) * self.scale

    def _waves(self, placement: Placement) -> tuple[Tensor, Tensor]:
        """Give sinusoids ``(N, width)`` of the distances there are, and which each pair has."""

        def form() -> tuple[Tensor, Tensor]:
            found, rows = torch.unique(-distances(placement), return_inverse=True)
            return sinusoids(found, self.distance.in_features), rows

        return placement.memoize((TransformerXLSite, self.distance.in_features), form)


class TransformerXL(LayerSites):
    """Score a key by its content, (q_i + u)·k_j, and its distance, (q_i + v)·W_R r_{i-j}.

    The sum of both is divided by √D; r_{i-j} are the sinusoids of the distance, as wide as the
    model, W_R projects them for each head, and u and v stand for a query of no content and start at
    0. Acts on scores; relative; ``(width + 2) * H * D`` parameters a layer; any position; keys can
    be cached. Costs a product with as many rows as there are distances, S + T - 1, and a look-up a
    score; and the projection of these rows, which weighs when single tokens are decoded.

    Distances come from the positions themselves, not by shifting a matrix, so it serves stacks that
    look both ways as well, as in XLNet, and with ``cross=True`` the distance of target and source
    positions.
    Source: Dai et al. 2019, arXiv 1901.02860, section 3.3 (RoFormer, arXiv 2104.09864, eq. 7);
    u and v of each layer's own as with ``--untie_r`` of kimiyoung/transformer-xl and in XLNet.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.sites = nn.ModuleList(TransformerXLSite(shape) for _ in range(shape.layers))
