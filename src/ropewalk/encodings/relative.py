"""Relative encodings that compute the scores themselves: Shaw, Transformer-XL, DeBERTa, CoPE.

Axes: `B` batch, `H` heads, `S` queries, `T` keys, `D` head_dim, `N` rows of a table.

No vector is ever computed for each pair of a query and a key, `(S, T, D)`. Instead, queries
(in DeBERTa also keys) are multiplied by the rows of a table once, and the product of each pair is
looked up: `(B, H, S, N)` to `(B, H, S, T)`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ropewalk.checks import check_bool, check_int, check_table
from ropewalk.encodings.absolute import sinusoids
from ropewalk.encodings.interface import (
    Attended,
    AttentionEncoding,
    LayerSites,
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
        heads, head_dim = q.shape[1], q.shape[-1]
        if (heads, head_dim) != (self.heads, self.head_dim):
            raise ValueError(
                f"attention must have the heads={self.heads} and head_dim={self.head_dim} that "
                f"this {self.name} encoding was built for, got {heads} heads of {head_dim} "
                f"dimensions"
            )
        wide = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            p = masked_softmax(self.scores(q.to(wide), k.to(wide), placement, mask), mask)
            output = self.weigh(p, v, placement)
        return Attended(output, p if need_probabilities else None)

    def project(self, projection: nn.Linear, vectors: Tensor) -> Tensor:
        """Project vectors `(N, width)`, in their dtype, to `(H, N, D)`."""
        projected = linear(vectors, projection.weight.to(vectors.dtype))
        heads: Tensor = projected.unflatten(-1, (self.heads, self.head_dim))
        return heads.transpose(0, 1)


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
        sums = p.new_zeros(*p.shape[:-1], self.count)  # over the keys that share a row
        shares = sums.scatter_add(-1, _for_heads(self._rows(placement), p), p)
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

    With c = clip(j - i, -L, L), where L is `distance`: the score is q_i·(k_j + a^K_c)/√D, and the
    output is Σ_j α_ij (v_j + a^V_c).

    Acts on scores and values; relative. Costs a product of each query with the 2L + 1 vectors and
    one look-up per score, and as much again for the values; `2 * (2L + 1) * D` parameters per
    layer. Accepts any position; distances beyond L count as L. Keys can be cached.
    Source: Shaw et al. 2018, arXiv 1803.02155, eq. 3 to 5;
    tensor2tensor/layers/common_attention.py.

    distance: L, which the paper calls k.
    values: False adds nothing to the values.
    per_head: give each head its own tables, as in the paper's base model.
    """

    def __init__(
        self, shape: StackShape, distance: int = 16, values: bool = True, per_head: bool = False
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


class TransformerXLSite(ScoringSite):
    """Score keys by their content and, separately, by their distance."""

    name = "transformer_xl"

    def __init__(self, shape: StackShape) -> None:
        super().__init__(shape)
        self.distance = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(shape.heads, shape.head_dim))
        self.v = nn.Parameter(torch.zeros(shape.heads, shape.head_dim))

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        def form() -> tuple[Tensor, Tensor]:
            """Return sinusoids `(N, width)` of the N distances, and the row of each pair."""
            different, rows = torch.unique(-distances(placement), return_inverse=True)
            return sinusoids(different, self.distance.in_features), rows

        waves, rows = placement.memoize((TransformerXLSite, self.distance.in_features), form)
        r = self.project(self.distance, waves.to(q.dtype))
        u, v = (x.to(q.dtype).unsqueeze(1) for x in (self.u, self.v))
        return ((q + u) @ k.mT + pick((q + v) @ r.mT, rows)) * self.scale


class TransformerXL(LayerSites):
    """Score a key by its content, (q_i + u)·k_j, and its distance, (q_i + v)·W_R r_{i-j}.

    Their sum is divided by √D. r_{i-j} are sinusoids of the distance, which W_R projects for each
    head; u and v are trained vectors, at first 0.

    Acts on scores; relative. Costs the projection of one row per distance (S + T - 1 rows), a
    product with them and one look-up per score; the projection is expensive when single tokens are
    decoded. Has `(width + 2) * H * D` parameters per layer. Accepts any position. Keys can be
    cached.
    Source: Dai et al. 2019, arXiv 1901.02860, section 3.3; each layer has its own u and v, as with
    `--untie_r` of kimiyoung/transformer-xl.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.sites = nn.ModuleList(TransformerXLSite(shape) for _ in range(shape.layers))


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
        def find() -> tuple[Tensor, Tensor]:
            """Return the rows of the table that are used, and which of them each pair uses."""
            all_rows = table_rows(-distances(placement), self.distance, self.buckets)
            used, index = torch.unique(all_rows, return_inverse=True)
            return used, index

        used, rows = placement.memoize((DebertaSite, self.distance, self.buckets), find)
        vectors: Tensor = self.table(used).to(q.dtype)
        to_distance = pick(q @ self.project(self.key, vectors).mT, rows)
        from_distance = pick(k @ self.project(self.query, vectors).mT, rows.mT).mT
        return (q @ k.mT + to_distance + from_distance) * self.scale


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

    The score is (q_i·k_j + q_i·K^r_{δ(i,j)} + k_j·Q^r_{δ(i,j)}) / √(3D). K^r and Q^r are each
    layer's projections of one table of relative embeddings, which the stack shares. δ(i, j) is i -
    j clipped to `[-distance, distance)`.

    Acts on scores; relative. Costs two projections of the table's rows, and for queries and again
    for keys a product with them and one look-up per score. Has `2 * distance * width` parameters,
    and `2 * width * H * D` per layer. Accepts any position. Keys can be cached.

    Eq. 4 of the paper has Q^r_{δ(j,i)}; its authors' code uses δ(i, j), as here.
    Source: He et al. 2020, arXiv 2006.03654, eq. 2 to 4, without the absolute positions of its
    decoder; transformers' deberta_v2, with `share_att_key=False` and no biases.

    buckets: rows for each side of the query, half for single distances, the others for growing
        ranges up to `distance` (DeBERTa-v3: 256 buckets, distance 512).
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


class CoPESite(ScoringSite):
    """Count keys by their gates, from the query to each key; score the vector of that count."""

    name = "cope"

    def __init__(self, shape: StackShape, npos_max: int) -> None:
        super().__init__(shape)
        self.npos_max, self.causal = npos_max, shape.causal
        sides = 1 if shape.causal else 2
        self.positions = nn.Parameter(torch.zeros(sides, npos_max, shape.head_dim))

    def scores(self, q: Tensor, k: Tensor, placement: Placement, mask: Tensor | None) -> Tensor:
        scores = q @ k.mT * self.scale
        gates = scores.sigmoid()
        if mask is not None:
            gates = gates.masked_fill(~mask, 0.0)
        if self.causal:
            return scores + self._at(q, _count_back(gates), None)
        ahead = placement.memoize((CoPESite, "ahead"), lambda: distances(placement) > 0)
        ahead = ahead.unsqueeze(-3)
        behind = _count_back(gates.masked_fill(ahead, 0.0))
        counts = torch.where(ahead, gates.masked_fill(~ahead, 0.0).cumsum(-1), behind)
        return scores + self._at(q, counts, ahead)

    def _at(self, q: Tensor, counts: Tensor, ahead: Tensor | None) -> Tensor:
        """Score q with e[count], interpolated between the vectors of the nearest whole numbers."""
        last = min(self.npos_max - 1, counts.shape[-1])  # no count is above the number of keys
        # Each side is cut separately: the rows of both sides are contiguous for one length only,
        # and torch.export would assume that length for all.
        vectors = torch.cat([side[: last + 1] for side in self.positions]).to(q.dtype)
        products = q @ vectors.mT
        counts = counts.clamp(max=last)
        below = counts.detach().floor().clamp(max=last - 1)
        rows = below.long() if ahead is None else below.long() + (last + 1) * ahead
        low, high = products.gather(-1, rows), products.gather(-1, rows + 1)
        return low + (counts - below) * (high - low)


def _count_back(gates: Tensor) -> Tensor:
    """Sum the gates `(..., T)` of each key and of all keys after it."""
    return gates.flip(-1).cumsum(-1).flip(-1)


class CoPE(LayerSites):
    """Count the keys that matter, from j to the query at i: p_ij = Σ_{t=j..i} σ(q_i·k_t/√D).

    The score is q_i·k_j/√D + q_i·e[p_ij]. e[p] is interpolated linearly between the vectors of the
    two whole numbers around p, and p is at most `npos_max - 1`. Masked keys are not counted.

    Acts on scores; relative, but by the content between query and key, not by their distance.
    Costs a sum along the keys, a product with npos_max rows and two look-ups per score. Has
    `npos_max * D` parameters per layer, which start at 0. Accepts any length. Keys can be cached.

    `two_sided` is our extension to stacks that look both ways: for a key after the query, the keys
    from i + 1 to j are counted, and e is another table.
    Source: Golovneva et al. 2024, arXiv 2405.18719, section 4 and the code of its appendix.
    """

    def __init__(self, shape: StackShape, npos_max: int = 64, two_sided: bool = False) -> None:
        super().__init__()
        check_int("npos_max", npos_max, 2, ", the vectors of counts 0 and 1")
        sides = 1 if shape.causal else 2
        check_table("npos_max", npos_max, npos_max * shape.head_dim * shape.layers * sides)
        check_bool("two_sided", two_sided)
        if not shape.causal and not two_sided:
            raise ValueError(
                "two_sided must be True in an encoder or in cross-attention, which look both ways, "
                "got False: the paper counts from a query back, and gives keys ahead of it no "
                "position; write cope(two_sided=True) to count on both sides"
            )
        self.sites = nn.ModuleList(CoPESite(shape, npos_max) for _ in range(shape.layers))
