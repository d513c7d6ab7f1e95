"""Relative position representations (Shaw et al. 2018): a vector for each clipped distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, check_int, check_table
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances, pick, sum_by_row


class ShawSite(ScoringSite):
    """Add to each key, and to each value, a vector that the clipped distance selects."""

    name = "shaw"

    def __init__(self, shape: StackShape, distance: int, values: bool, per_head: bool) -> None:
        super().__init__(shape)
        self.distance, self.count = distance, 2 * distance + 1
        rows = self.count * (shape.heads if per_head else 1)
        self.keys = nn.Embedding(rows, shape.head_dim)
        self.values = nn.Embedding(rows, shape.head_dim) if values else None

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        q = q * self.scale
        return q @ k.mT + pick(q @ self._table(self.keys, q.dtype).mT, self._rows(placement))

    def weigh(self, p: Tensor, v: Tensor, placement: Placement) -> Tensor:
        output = super().weigh(p, v, placement)
        if self.values is None:
            return output
        shares = sum_by_row(p, self._rows(placement), self.count)
        return output + (shares @ self._table(self.values, p.dtype)).to(v.dtype)

    def _rows(self, placement: Placement) -> Tensor:
        def clip() -> Tensor:
            return distances(placement).clamp(-self.distance, self.distance) + self.distance

        return placement.memoize((ShawSite, self.distance), clip)

    def _table(self, table: nn.Embedding, dtype: torch.dtype) -> Tensor:
        """Return the table `(count, D)` that heads share, or `(H, count, D)`."""
        weight = table.weight.to(dtype)
        return weight if len(weight) == self.count else weight.unflatten(0, (-1, self.count))


class Shaw(LayerSites):
    """Add to each key a trained vector that its distance selects, and another to each value.

    With c = clip(j - i, -L, L), where L is `distance`, for a query at i and a key at j: the score
    is q_i·(k_j + a^K_c)/√D, and the output is Σ_j α_ij (v_j + a^V_c).

    Acts on scores and values; relative. Costs a product of each query with the 2L + 1 vectors and
    one look-up per score, and as much again for the values. Has `2 * (2L + 1) * D` parameters per
    layer, shared by its heads. Accepts any position; distances beyond L count as L. Keys can be
    cached. With `cross=True` (see `build_encoder_decoder`), it also acts in cross-attention:
    i is then a target position and j a source position.
    Source: Shaw et al. 2018, arXiv 1803.02155, eq. 3 to 5 (RoFormer, arXiv 2104.09864, eq. 5);
    `dot_product_attention_relative` of tensor2tensor/layers/common_attention.py.

    distance: L, which the paper calls k.
    values: False adds nothing to the values; section 4.3 of the paper finds that this costs no
    quality.
    per_head: give each head its own tables, as in the paper's base model.
    """

    def __init__(
        self,
        shape: StackShape,
        distance: int = 16,
        values: bool = True,
        per_head: bool = False,
    ) -> None:
        super().__init__()
        check_int("distance", distance, 1, "; with 0, all keys would get the same vector")
        check_bool("values", values)
        numbers = (2 * distance + 1) * shape.head_dim * shape.layers * (2 if values else 1)
        check_table("distance", distance, numbers * (shape.heads if per_head else 1))
        check_bool("per_head", per_head)
        self.sites = nn.ModuleList(
            ShawSite(shape, distance, values, per_head) for _ in range(shape.layers)
        )
