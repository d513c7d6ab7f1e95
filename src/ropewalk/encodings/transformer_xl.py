"""Transformer-XL's relative positions: separate scores for content and for distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ropewalk.encodings.absolute import sinusoids
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances, pick


class TransformerXLSite(ScoringSite):
    """Score keys by their content and, separately, by their distance."""

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
        """Return sinusoids `(N, width)` of the N distances, and the row of each pair."""

        def form() -> tuple[Tensor, Tensor]:
            found, rows = torch.unique(-distances(placement), return_inverse=True)
            return sinusoids(found, self.distance.in_features), rows

        return placement.memoize((TransformerXLSite, self.distance.in_features), form)


class TransformerXL(LayerSites):
    """Score a key by its content, (q_i + u)·k_j, and its distance, (q_i + v)·W_R r_{i-j}.

    The sum of both is divided by √D. r_{i-j} are the sinusoids of the distance, as wide as the
    model; W_R projects them for each head; u and v are trained vectors, at first 0. (If
    positions are added to embeddings, two terms of a score contain the query's position. Here, u
    takes its place in the first, and v in the second.)

    Acts on scores; relative. Costs the projection of one row per distance (S + T - 1 rows), a
    product with them and one look-up per score; the projection is expensive when single tokens are
    decoded. Has `(width + 2) * H * D` parameters per layer. Accepts any position. Keys can be
    cached.

    The paper obtains the distances by shifting rows of the score matrix; here they are computed
    from positions. So the encoding also works in stacks that look both ways, as in XLNet, and with
    `cross=True` (see `build_encoder_decoder`) in cross-attention, where the query has a target
    position and the key a source position.
    Source: Dai et al. 2019, arXiv 1901.02860, section 3.3 (RoFormer, arXiv 2104.09864, eq. 7);
    each layer has its own u and v, as with `--untie_r` of kimiyoung/transformer-xl and in XLNet.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.sites = nn.ModuleList(TransformerXLSite(shape) for _ in range(shape.layers))
