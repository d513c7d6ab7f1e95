"""Contextual position encoding (CoPE): positions count what a query takes to be worth counting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, check_int, check_table
from ropewalk.encodings.interface import Placement, StackShape
from ropewalk.encodings.relative import LayerSites, ScoringSite, distances


class CoPESite(ScoringSite):
    """Count keys by their gates, from the query to each, and score what stands at that count."""

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
        """Score q with e[count], between the vectors of the two whole numbers nearest to it."""
        last = min(self.npos_max - 1, counts.shape[-1])  # no count is above the number of keys
        # Each side is cut by itself: rows of both are contiguous for one length only, and
        # torch.export would take that length for all.
        vectors = torch.cat([side[: last + 1] for side in self.positions]).to(q.dtype)
        products = q @ vectors.mT
        counts = counts.clamp(max=last)
        below = counts.detach().floor().clamp(max=last - 1)
        rows = below.long() if ahead is None else below.long() + (last + 1) * ahead
        low, high = products.gather(-1, rows), products.gather(-1, rows + 1)
        return low + (counts - below) * (high - low)


def _count_back(gates: Tensor) -> Tensor:
    """Sum the gates ``(..., T)`` of each key and of all that follow it."""
    return gates.flip(-1).cumsum(-1).flip(-1)


class CoPE(LayerSites):
    """Count the keys from j to the query at i that matter, p_ij = Σ_{t=j..i} σ(q_i·k_t/√D).

    Score q_i·k_j/√D + q_i·e[p_ij], where e[p] lies on the line between the vectors of the two whole
    numbers around p, and p is at most ``npos_max - 1``. Masked keys count for nothing. Acts on
    scores; relative, to what is between and not to how far it is: it needs the order of keys, no
    position numbers; ``npos_max * D`` parameters a layer, which start at 0; any length; keys can be
    cached. Costs a sum along the keys, a product with npos_max rows and two look-ups a score.

    The paper looks back only. ``two_sided`` extends it, on our own account, to stacks that look
    both ways: keys ahead of the query are counted from there to j, i excluded, and have vectors of
    their own; which side a key is on is told by its position.
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
                "two_sided must be True where a stack looks both ways, as encoders and cross-"
                "attention do, got False: the paper counts from a query back, and leaves keys "
                "ahead of it without a position; write cope(two_sided=True) to count on both sides"
            )
        self.sites = nn.ModuleList(CoPESite(shape, npos_max) for _ in range(shape.layers))
