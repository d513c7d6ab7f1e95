"""Attention with linear biases: the farther a key, the less its score, in proportion."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import check_bool
from ropewalk.encodings.bias import PairBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape

#: What keeps a query from looking at a key: finite, so that a query without keys gives no NaN.
UNSEEN = torch.finfo(torch.float32).min / 2


def slopes(heads: int) -> list[float]:
    """Give ALiBi's slope of each head, 2^(-8h/H).

    Where H is no power of two, the first p heads have the slopes of the power p below H, and the
    rest take every other one of those for 2p. Source: ``get_slopes`` in
    ofirpress/attention_with_linear_biases, fairseq/models/transformer.py.
    """
    power = 1 << (heads.bit_length() - 1)
    regular = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return regular + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power), 2)]


class ALiBiSite(PairBias):
    """Take ``slope * |i - j|`` off the scores."""

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
        # Along a row, softmax does not tell -m|i - j| from m * j, which needs no pairs. But fused
        # attention takes a bias in the dtype of q, and in bfloat16 m * j makes neighbours one.
        offset = key - query
        bias = -rows[head] * offset.abs()
        if not self.one_sided:
            return bias
        hidden = torch.where(head >= len(self.slopes) // 2, offset < 0, offset > 0)
        return bias.masked_fill(hidden, UNSEEN)


class ALiBi(Encoding):
    """Take ``m_h |i - j|`` off the scaled scores, ``m_h = 2^(-8h/H)``: the farther, the less.

    Acts on scores, the same in every layer; relative; no parameters; any position; costs one
    addition a score; keys can be cached. The paper looks back only. A stack that looks both ways
    does so by distance (``symmetric``), or half of its heads look back and half ahead, each half
    with the slopes of H/2 heads (``symmetric=False``). The paper has no cross-attention; with
    ``cross=True`` the symmetric formula holds between target and source positions, and favours keys
    that stand where the query does. Symmetric, it cannot tell a sequence from its reverse.
    Source: Press et al. 2021, arXiv 2108.12409, section 3; both ways: its authors' issue 5,
    github.com/ofirpress/attention_with_linear_biases/issues/5.
    """

    def __init__(self, shape: StackShape, symmetric: bool = True) -> None:
        super().__init__()
        check_bool("symmetric", symmetric)
        one_sided = not (symmetric or shape.causal)
        if one_sided and shape.heads % 2:
            raise ValueError(
                f"symmetric must be True for {shape.heads} heads, got False: half of them look "
                f"back and half ahead, so their number must be even"
            )
        self.shared = ALiBiSite(shape.heads, one_sided)
        self.crosses = not one_sided

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
