"""DeBERTa's disentangled attention: content to content, content to position, and the reverse."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ropewalk.checks import check_int, check_table
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances, pick


class DebertaSite(ScoringSite):
    """Score content with content, content with distance, and distance with content."""

    name = "deberta"

    def __init__(
        self, shape: StackShape, table: nn.Embedding, distance: int, buckets: int | None
    ) -> None:
        super().__init__(shape)
        self.scale = (3 * shape.head_dim) ** -0.5  # of three scores
        self.table, self.distance, self.buckets = table, distance, buckets
        self.query = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.key = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        used, rows = self._rows(placement)
        vectors: Tensor = self.table(used).to(q.dtype)
        to_distance = pick(q @ self._project(self.key, vectors).mT, rows)
        from_distance = pick(k @ self._project(self.query, vectors).mT, rows.mT).mT
        return (q @ k.mT + to_distance + from_distance) * self.scale

    def _project(self, projection: nn.Linear, vectors: Tensor) -> Tensor:
        """Project vectors `(N, width)` to `(H, N, D)`."""
        projected = linear(vectors, projection.weight.to(vectors.dtype))
        heads: Tensor = projected.unflatten(-1, (self.heads, self.head_dim))
        return heads.transpose(0, 1)

    def _rows(self, placement: Placement) -> tuple[Tensor, Tensor]:
        """Return the rows of the table that are used, and which of them each pair uses."""

        def find() -> tuple[Tensor, Tensor]:
            rows = table_rows(-distances(placement), self.distance, self.buckets)
            used, index = torch.unique(rows, return_inverse=True)
            return used, index

        return placement.memoize((DebertaSite, self.distance, self.buckets), find)


def table_rows(behind: Tensor, distance: int, buckets: int | None) -> Tensor:
    """Return δ(i, j), the row of the table; `behind` is i - j, and row 0 is the farthest key ahead.

    Source: eq. 3 of the paper; with buckets, `make_log_bucket_position` of
    microsoft/DeBERTa/DeBERTa/deberta/da_utils.py.
    """
    if buckets is None:
        return behind.clamp(-distance, distance - 1) + distance
    exact = buckets // 2
    far = behind.abs().clamp(min=exact).double() / exact
    log = (far.log() / math.log((distance - 1) / exact) * (exact - 1)).ceil().long() + exact
    bucket = torch.where(behind.abs() <= exact, behind, log * behind.sign())
    return bucket.clamp(-buckets, buckets - 1) + buckets


class Deberta(LayerSites):
    """Score content with content, content with distance, and distance with content.

    The score is (q_i·k_j + q_i·K^r_{δ(i,j)} + k_j·Q^r_{δ(i,j)}) / √(3D). K^r and Q^r are two
    projections of one table of relative embeddings. Each layer has its own projections; the stack
    shares the table. δ(i, j) is i - j clipped to `[-distance, distance)`.

    Acts on scores; relative. Costs two projections of the table's rows whose distances occur, and
    then, for queries and again for keys, a product with the projected rows and one look-up per
    score. The table has `2 * distance * width` parameters, and each layer has `2 * width * H * D`
    more. Accepts any position. Keys can be cached. With `cross=True` (see
    `build_encoder_decoder`), it also acts in cross-attention: i is then a target position and j a
    source position.

    Eq. 4 of the paper has Q^r_{δ(j,i)}; its authors' code and transformers use δ(i, j), as here.
    Rows of distances that training never meets keep their random initial values.
    Source: He et al. 2020, arXiv 2006.03654, eq. 2 to 4 (RoFormer, arXiv 2104.09864, eq. 10),
    without the absolute positions of its decoder; `disentangled_attention_bias` of transformers'
    deberta_v2, with separate projections for positions (`share_att_key=False`) and no biases.

    buckets: use this many rows for keys before the query, and as many after it. On each
        side, the first half of the rows serve the shortest distances, one distance per row. Each
        row of the second half serves a range of distances; ranges grow by a constant factor up to
        `distance` (DeBERTa-v3: 256 buckets, distance 512).
    """

    def __init__(self, shape: StackShape, distance: int = 512, buckets: int | None = None) -> None:
        super().__init__()
        check_int("distance", distance, 1)
        if buckets is not None:
            check_int("buckets", buckets, 4)
            why = f", because distances below {buckets // 2} have a bucket each"
            check_int("distance", distance, buckets // 2 + 2, why)
        name, side = ("distance", distance) if buckets is None else ("buckets", buckets)
        rows = 2 * side
        check_table(name, side, rows * shape.width)
        self.table = nn.Embedding(rows, shape.width)
        self.sites = nn.ModuleList(
            DebertaSite(shape, self.table, distance, buckets) for _ in range(shape.layers)
        )
