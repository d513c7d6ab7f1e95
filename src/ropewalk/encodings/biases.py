"""Encodings that add to the scores by position alone: ALiBi, KERPLE, FIRE and T5.

In their formulas, i is the position of a query, j the position of a key, and h a head, counted from
1 to H.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from ropewalk.checks import check_amplitude, check_bool, check_int, check_number, shown
from ropewalk.encodings.interface import (
    AttentionEncoding,
    LayerSites,
    Placement,
    SharedSite,
    StackShape,
)
from ropewalk.encodings.relative import distances


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


#: Bias that hides a key from a query: finite, so that a query without keys gives no NaN.
UNSEEN = torch.finfo(torch.float32).min / 2


def slopes(heads: int) -> list[float]:
    """Return ALiBi's slope of each head, 2^(-8h/H).

    h counts the H heads from 1. If H is not a power of two, let p be the largest power of two below
    H. The first p heads have the slopes for p heads; the other heads take the 1st, 3rd, … of the
    slopes for 2p heads. Source: `get_slopes` in ofirpress/attention_with_linear_biases,
    fairseq/models/transformer.py.
    """
    power = 1 << (heads.bit_length() - 1)
    regular = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return regular + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power), 2)]


class ALiBiSite(PairBias):
    """Subtract `slope * |i - j|` from the scores."""

    def __init__(self, heads: int, one_sided: bool) -> None:
        super().__init__()
        self.one_sided = one_sided
        self.slopes = slopes(heads // 2) * 2 if one_sided else slopes(heads)

    def form(self, placement: Placement) -> Tensor:
        device = placement.queries.device
        heads = torch.arange(len(self.slopes), device=device)[:, None, None]
        queries, keys = placement.queries[..., None, :, None], placement.keys[..., None, None, :]
        return self.pair(self.rows(device), heads, queries, keys)

    def rows(self, device: torch.device) -> Tensor:
        return torch.tensor(self.slopes, dtype=torch.float32, device=device)

    def pair(self, rows: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # When queries only look back, a simpler bias, `slope * j`, gives the same softmax. It is
        # not used: fused attention takes a bias in the dtype of q, and in bfloat16, neighbors would
        # get the same `slope * j`.
        offset = key - query
        bias = -rows[head] * offset.abs()
        if not self.one_sided:
            return bias
        hidden = torch.where(head >= len(self.slopes) // 2, offset < 0, offset > 0)
        return bias.masked_fill(hidden, UNSEEN)


class ALiBi(SharedSite):
    """Subtract `m_h |i - j|` from the scaled scores, `m_h = 2^(-8h/H)` in head h = 1 … H.

    If H is not a power of two, the m_h are those of the authors' `get_slopes`. Acts on scores;
    relative. The bias is the same in every layer. Costs one addition per score; no parameters.
    Accepts any position. Keys can be cached.

    A stack that looks both ways, which the paper does not have, cannot distinguish a sequence from
    its reverse; with `symmetric=False`, half of the heads look back and half ahead, each half with
    the slopes of H/2 heads.
    Source: Press et al. 2021, arXiv 2108.12409, section 3; for both ways,
    github.com/ofirpress/attention_with_linear_biases/issues/5.
    """

    def __init__(self, shape: StackShape, symmetric: bool = True) -> None:
        super().__init__()
        check_bool("symmetric", symmetric)
        one_sided = not (symmetric or shape.causal)
        if one_sided and shape.heads % 2:
            raise ValueError(
                f"symmetric must be True for {shape.heads} heads, got False: half of the heads "
                f"would look back and half ahead, so their number must be even"
            )
        self.shared = ALiBiSite(shape.heads, one_sided)
        self.crosses = not one_sided


#: Lower limit of both parameters, as in the authors' code.
LEAST = 1e-2


class KerpleSite(ScoreBias):
    """Add a kernel of `|i - j|` to the scores, with two parameters per head."""

    def __init__(self, heads: int, power: bool) -> None:
        super().__init__()
        self.power = power
        # The authors draw r1 from 0 to 2 and r2 from 0 to 1 at random (with power, from 0 to 1 and
        # 0 to 2). Here the heads' values are evenly spaced over these ranges, so no seed is needed.
        spread = (torch.arange(heads) + 0.5) / heads
        self.r1 = nn.Parameter(spread * (1 if power else 2))
        self.r2 = nn.Parameter(spread * (2 if power else 1))

    def form(self, placement: Placement) -> Tensor:
        wide = torch.promote_types(self.r1.dtype, torch.float32)
        distance = distances(placement).abs().unsqueeze(-3).to(wide)
        r1, r2 = (r.to(wide)[:, None, None] for r in (self.r1, self.r2))
        r1, r2 = held_within(r1), held_within(r2, 2.0 if self.power else None)
        return -r1 * (distance.pow(r2) if self.power else torch.log1p(r2 * distance))


def held_within(x: Tensor, most: float | None = None) -> Tensor:
    """Clamp x to the range from `LEAST` to `most`; gradients pass as if x were not clamped.

    With plain clamping, a parameter beyond a limit would have gradient 0 and stay there. The
    authors' code avoids this by writing the clamped values into the parameters at each step.
    """
    return x.clamp(LEAST, most).detach() + (x - x.detach())


class Kerple(SharedSite):
    """Add a kernel of the distance to the scaled scores; each head learns its shape.

    `kind=log` is `-r1 log(1 + r2 |i - j|)`. `kind=power` is `-r1 |i - j|^r2`; ALiBi is the case
    `r2 = 1` with fixed r1. r1 and r2 are at least 0.01; with `kind=power`, r2 is at most 2.

    Acts on scores; relative. Costs one logarithm or power per score, once for all layers (in each
    layer for long sequences); `2 H` parameters, shared by all layers. Accepts any position. Keys
    can be cached. A stack that looks both ways cannot distinguish a sequence from its reverse.
    Source: Chi et al. 2022, arXiv 2205.09921, with the limits of chijames/KERPLE,
    megatron/mpu/layers.py.
    """

    def __init__(self, shape: StackShape, kind: Literal["log", "power"] = "log") -> None:
        super().__init__()
        if kind not in ("log", "power"):
            raise ValueError(f"kind must be 'log' or 'power', got {shown(kind)}")
        self.shared = KerpleSite(shape.heads, kind == "power")


MOST_HIDDEN = 4096


class FireSite(ScoreBias):
    """Add to the scores the H outputs of a network whose one input is a share in [0, 1]."""

    def __init__(self, heads: int, hidden: int, c: float, length: float) -> None:
        super().__init__()
        self.length = length
        self.c = nn.Parameter(torch.tensor(float(c)))
        self.stretch = nn.Parameter(torch.tensor(1.0))  # of length, so that both learn at one rate
        # Inputs are at least 0: a unit with negative weight and no offset would stay dead. So half
        # of the units start with each sign, and their kinks are spread over [0, 1].
        kinks = (torch.arange(hidden) + 0.5) / hidden
        sign = 1.0 - 2.0 * (torch.arange(hidden) % 2)
        self.weight, self.offset = nn.Parameter(sign), nn.Parameter(-sign * kinks)
        self.output = nn.Linear(hidden, heads, bias=False)  # softmax would cancel it

    def form(self, placement: Placement) -> Tensor:
        wide = torch.promote_types(self.c.dtype, torch.float32)
        share = self.share(placement, wide)
        kinks, lines = self.pieces(wide)
        # One look-up per pair, instead of the values of all hidden units.
        intercept, slope = embedding(torch.bucketize(share.detach(), kinks), lines).chunk(2, -1)
        return (intercept + slope * share.unsqueeze(-1)).movedim(-1, -3).contiguous()

    def pieces(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the network as straight lines between its kinks, which is what it is.

        The kinks are `(hidden,)`, in ascending order. The pieces before, between and after them are
        `(hidden + 1, 2 H)`: the intercepts, then the slopes, of every head.
        """
        weight, offset = self.weight.to(dtype), self.offset.to(dtype)
        output = self.output.weight.to(dtype)
        with torch.no_grad():
            # Outside [0, 1] it does not matter where a kink is, or whether there is one.
            kinks = (-offset / weight).nan_to_num(2.0).clamp(-1.0, 2.0).sort().values
            edges = torch.cat([kinks.new_tensor([-1.0]), kinks, kinks.new_tensor([2.0])])
            middle = (edges[1:] + edges[:-1]) / 2
            active = (middle[:, None] * weight + offset > 0).to(dtype)
        with torch.autocast(weight.device.type, enabled=False):
            lines = linear(torch.cat([active * offset, active * weight]), output)
        return kinks, torch.cat(lines.chunk(2), -1)

    def share(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Return psi(|i - j|) / psi(max(i, j, L)), in [0, 1]: `(S, T)` or `(B, S, T)`."""
        c, least = self.c.to(dtype).abs(), (self.stretch.to(dtype) * self.length).abs()
        queries, keys = placement.queries[..., :, None], placement.keys[..., None, :]
        reach = torch.maximum(torch.maximum(queries, keys).to(dtype), least)
        distance = distances(placement).abs().to(dtype)
        return torch.log1p(c * distance) / (torch.log1p(c * reach) + 1e-6)


class Fire(LayerSites):
    """Add `f_h(psi(i - j) / psi(max(i, L)))` to the scaled scores, with `psi(x) = log(c x + 1)`.

    f is a network with one hidden ReLU layer and one output per head; f, c and L are learned.
    Inputs are in [0, 1] at any length: a distance is a fraction of the query's position, or of L
    before L.

    Acts on scores; relative up to L, but for later queries the same distance is a smaller
    fraction. Costs a look-up and a product per score in each layer. Has `(H + 2) hidden + 2`
    parameters per layer, or once if layers are `shared` (the paper's FIRE-S). Accepts any
    position. Keys can be cached.

    A stack that looks both ways uses `|i - j|` and `max(i, j, L)`; it cannot distinguish a
    sequence from its reverse.
    Source: Li et al. 2023, arXiv 2310.04418, section 3 and its appendix, whose `hidden`, `c` and
    `length` (L) are the starting values here.
    """

    def __init__(
        self,
        shape: StackShape,
        hidden: int = 32,
        c: float = 0.1,
        length: float = 512,
        shared: bool = False,
    ) -> None:
        super().__init__()
        check_int("hidden", hidden, 1)
        if hidden > MOST_HIDDEN:
            raise ValueError(
                f"hidden must be at most {MOST_HIDDEN}, because memory grows with its square, got "
                f"{shown(hidden)}; the paper uses 32"
            )
        for name, value in (("c", c), ("length", length)):
            check_number(name, value)
            check_amplitude(name, value)  # so that float32 can represent their product
        check_bool("shared", shared)
        sites = 1 if shared else shape.layers
        self.sites = nn.ModuleList(FireSite(shape.heads, hidden, c, length) for _ in range(sites))


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

    def __init__(self, shape: StackShape, buckets: int, distance: int, scale: float | None) -> None:
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


class T5(SharedSite):
    """Add `b_h[bucket(j - i)]` to the scores: a learned number for each head and each bucket.

    Acts on scores; relative. Costs one look-up per score, once for all layers (in each layer for
    long sequences). Has `buckets * H` parameters, shared by all layers. Accepts any position;
    distances of at least `distance` share one bucket. Keys can be cached.

    Half of the buckets contain one distance each; the ranges of the others grow by a constant
    factor. A stack that looks both ways has half of the buckets for each side.

    T5 does not scale `q k^T`: it starts the weights of q smaller, by 1/sqrt(D). Here scores are
    scaled instead, so they start as T5's do. Use `scale=1` with the weights of a trained T5.
    Source: Raffel et al. 2019, arXiv 1910.10683, section 2.1;
    mesh_tensorflow/transformer/transformer_layers.py.
    """

    shared: T5Site

    def __init__(
        self, shape: StackShape, buckets: int = 32, distance: int = 128, scale: float | None = None
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
