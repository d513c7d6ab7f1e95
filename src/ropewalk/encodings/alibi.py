"""Attention with linear biases: scores fall in proportion to the distance."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import check_bool
from ropewalk.encodings.bias import PairBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape

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


class ALiBi(Encoding):
    """Subtract `m_h |i - j|` from the scaled scores, `m_h = 2^(-8h/H)` in head h = 1 … H.

    If H is not a power of two, the m_h are those of the authors' `get_slopes`. Acts on scores;
    relative. The bias is the same in every layer. Costs one addition per score; no parameters.
    Accepts any position. Keys can be cached.

    In the paper, queries only look back. In a stack that looks both ways, with `symmetric=True`,
    the bias is the same for equally distant keys before and after a query. Such a stack cannot
    distinguish a sequence from its reverse. With `symmetric=False`, half of the heads look back and
    half look ahead, each half with the slopes of H/2 heads.

    In cross-attention, which the paper does not have, ALiBi acts only if it is built by
    `build_encoder_decoder("alibi(cross=True)", …)`. It uses the symmetric formula with the distance
    between a target and a source position. So a query at target position i favors the key at
    source position i.
    Source: Press et al. 2021, arXiv 2108.12409, section 3. For stacks that look both ways: issue 5
    in its authors' repository, github.com/ofirpress/attention_with_linear_biases/issues/5.
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

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
