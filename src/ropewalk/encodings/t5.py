"""T5's relative position bias: a number learned for each bucket of distances."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext

import torch
from torch import Tensor, nn

from ropewalk.checks import check_amplitude, check_int, check_number, shown
from ropewalk.encodings.bias import PairBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import distances

#: Distances that are given their numbers beforehand, in memory, instead of through their bucket.
MOST_DISTANCES = 2**16
#: Buckets, of which each takes Python some microseconds to find.
MOST_BUCKETS = 2**13


def bucket_borders(buckets: int, distance: int) -> list[int]:
    """Give the least distance of each of T5's buckets on one side, but for bucket 0.

    The first half of the buckets hold one distance each. The others part what is left, up to
    ``distance``, by equal ratios, and the last takes all beyond. Borders are whole numbers, found
    as such: no rounding of a logarithm decides.
    """
    exact, wide = buckets // 2, buckets - buckets // 2
    ratios = []
    with localcontext(Context(prec=60)):
        step = (Decimal(distance) / max(exact, 1)).ln() / wide
        for k in range(1, wide):
            border = exact * (step * k).exp()
            near = round(border)
            if abs(border - near) > Decimal("1e-30"):
                ratios.append(int(border.to_integral_value(ROUND_CEILING)))
            else:  # whether it is a whole number, no digits tell
                reached = near**wide >= distance**k * exact ** (wide - k)
                ratios.append(near if reached else near + 1)
    return [*range(1, exact + 1), *ratios]


class T5Site(PairBias):
    """Add to the scores what a table holds for the bucket of j - i."""

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
        """Give the bucket of each j - i: where keys stand on both sides, half of them for each."""
        far = -offset.clamp(max=0) if self.causal else offset.abs()
        borders = torch.tensor(self.borders, device=offset.device)
        bucket = torch.bucketize(far, borders, right=True)
        return bucket if self.causal else bucket + self.side * (offset > 0)

    def form(self, placement: Placement) -> Tensor:
        values: Tensor = self.table(self.bucket(distances(placement)))
        return values.movedim(-1, -3).contiguous()

    def rows(self, device: torch.device) -> Tensor | None:
        # All beyond the last border share a bucket: a number for each distance up to it suffices.
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
    """Add ``b_h[bucket(j - i)]`` to the scores: a number learned for each head and each bucket.

    Acts on scores; relative; ``buckets * H`` parameters, shared by all layers of the stack; any
    position, all from ``distance`` on in one bucket; costs one look-up a score, once for all
    layers (in each, where a sequence is long); keys can be cached. Where the stack looks both ways,
    each side has half of the buckets. Half of a side's buckets hold one distance each, the others
    grow by equal ratios.

    T5 does not scale ``q k^T``: it starts the weights of q 1/sqrt(D) smaller instead. Here q starts
    as for every other encoding, and the factor stays with the scores: both are the same functions,
    at the same start, with ``W_q = sqrt(D) * T5's``; unscaled, scores would start D times T5's in
    variance. ``scale=1`` is for weights that T5 trained.
    Source: Raffel et al. 2019, arXiv 1910.10683, section 2.1; ``_relative_position_bucket`` of
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
                f"buckets must be at most {MOST_BUCKETS}, got {shown(buckets)}; T5 has 32"
            )
        if buckets % 2:
            raise ValueError(f"buckets must be even, to serve two sides, got {buckets}")
        single = (buckets if shape.causal else buckets // 2) // 2
        check_int("distance", distance, single + 1, f", as {single} have a bucket of their own")
        if scale is not None:
            check_number("scale", scale)
            check_amplitude("scale", scale)  # scores beyond float32 are NaN behind the softmax
        self.shared = T5Site(shape, buckets, distance, scale)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
