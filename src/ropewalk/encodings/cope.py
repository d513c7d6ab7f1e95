"""Contextual position encoding (CoPE): a position counts the keys that a query finds relevant."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, check_int, check_table
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances


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

    Acts on scores; relative, but by the content between query and key, not by their distance:
    it needs the order of the keys, not their position numbers. Costs a sum along the keys, a
    product with npos_max rows and two look-ups per score; `npos_max * D` parameters per layer,
    which start at 0. Accepts any length. Keys can be cached.

    The paper looks back only. `two_sided` is our extension to stacks that look both ways: for
    a key at j after the query at i, the keys from i + 1 to j are counted, and e is another table.
    The positions tell on which side of the query a key is.
    Source: Golovneva et al. 2024, arXiv 2405.18719, section 4 and the code of its appendix: gates
    and content are scaled by 1/√D, q·e[p] is not, and heads share the vectors.
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
