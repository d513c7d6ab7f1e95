"""T5's relative position bias: a learned number for each bucket of distances."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext

import torch
from torch import Tensor, nn

from ropewalk.checks import check_amplitude, check_int, check_number, shown
from ropewalk.encodings.bias import PairBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import distances

#: Maximum distance in a table of biases; `T5Site.rows` returns None if a bucket begins beyond it.
MOST_DISTANCES = 2**16
#: Maximum number of buckets; for each, computing where it begins takes some microseconds.
MOST_BUCKETS = 2**13


def bucket_borders(buckets: int, distance: int) -> list[int]:
    """Return the least distance of each of T5's buckets, except bucket 0.

    buckets: the number of buckets for keys before the query. (In a stack that looks both ways,
    those for keys after the query have the same borders.)

    The first half of the buckets contain one distance each. The ranges of the others grow by a
    constant factor, chosen so that the last range ends at `distance`. Greater distances also go
    into the last bucket. Borders are computed to 60 digits, then rounded up.
    """
    exact, wide = buckets // 2, buckets - buckets // 2
    growing = []
    with localcontext(Context(prec=60)):
        step = (Decimal(distance) / max(exact, 1)).ln() / wide
        for k in range(1, wide):
            border = exact * (step * k).exp()
            near = round(border)
            if abs(border - near) > Decimal("1e-30"):
                growing.append(int(border.to_integral_value(ROUND_CEILING)))
            else:  # 60 digits cannot tell which side it is on; integer powers can
                at_most_near = distance**k * exact ** (wide - k) <= near**wide
                growing.append(near if at_most_near else near + 1)
    return [*range(1, exact + 1), *growing]


class T5Site(PairBias):
    """Add a learned number to each score: there is one for each head and bucket.

    The bucket is that of j - i, the position of the key minus the position of the query.
    """

    def __init__(
        self,
        shape: StackShape,
        buckets: int = 32,
        distance: int = 128,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.causal, self.scale = shape.causal, scale
        self.side = buckets if shape.causal else buckets // 2
        self.borders = bucket_borders(self.side, distance)
        self.table = nn.Embedding(buckets, shape.heads)

    def bucket(self, offset: Tensor) -> Tensor:
        """Return the bucket of each j - i.

        In a stack that looks both ways, half of the buckets are for keys before the query and half
        for keys after it.
        """
        far = -offset.clamp(max=0) if self.causal else offset.abs()
        borders = torch.tensor(self.borders, device=offset.device)
        bucket = torch.bucketize(far, borders, right=True)
        return bucket if self.causal else bucket + self.side * (offset > 0)

    def form(self, placement: Placement) -> Tensor:
        values: Tensor = self.table(self.bucket(distances(placement)))
        return values.movedim(-1, -3).contiguous()

    def rows(self, device: torch.device) -> Tensor | None:
        # All distances beyond the last border share a bucket, so the table ends there.
        most = self.borders[-1]
        if most > MOST_DISTANCES:
            return None
        offset = torch.arange(-most, most + 1, device=device)
        values: Tensor = self.table(self.bucket(offset))
        return values.T.contiguous()  # (H, 2 * most + 1)

    def pair(self, rows: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        most = self.borders[-1]
        return rows[head, (key - query).clamp(-most, most) + most]


class T5(Encoding):
    """Add `b_h[bucket(j - i)]` to the scores: a learned number for each head and each bucket.

    Acts on scores; relative. Costs one look-up per score, done once for all layers. For long
    sequences, whose scores are computed block by block, each layer does it again. Has `buckets * H`
    parameters, shared by all layers of the stack. Accepts any position; distances of at least
    `distance` share one bucket. Keys can be cached.

    In a stack that looks both ways, each side has half of the buckets. Half of a side's buckets
    contain one distance each; the ranges of the others grow by a constant factor.

    T5 does not scale `q k^T`: it starts the weights of q smaller, by 1/sqrt(D). Here `W_q` starts
    as for every other encoding, `sqrt(D)` times as large as in T5, and scores are scaled by
    1/sqrt(D). The scale cancels the factor, so the initial scores are those of T5. Without the
    scale, the variance of the scores would start at D times T5's. Use `scale=1` with the weights of
    a trained T5.
    Source: Raffel et al. 2019, arXiv 1910.10683, section 2.1; `_relative_position_bucket` of
    mesh_tensorflow/transformer/transformer_layers.py, which transformers' T5 follows.
    """

    def __init__(
        self,
        shape: StackShape,
        buckets: int = 32,
        distance: int = 128,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        check_int("buckets", buckets, 4)
        if buckets > MOST_BUCKETS:
            raise ValueError(
                f"buckets must be at most {MOST_BUCKETS}, got {shown(buckets)}; T5 uses 32"
            )
        if buckets % 2:
            raise ValueError(f"buckets must be even, got {buckets}; T5 uses 32")
        single = (buckets if shape.causal else buckets // 2) // 2
        check_int(
            "distance",
            distance,
            single + 1,
            f", because distances 0 to {single - 1} have a bucket each",
        )
        if scale is not None:
            check_number("scale", scale)
            check_amplitude("scale", scale)  # scores beyond float32 give NaN after the softmax
        self.shared = T5Site(shape, buckets, distance, scale)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
