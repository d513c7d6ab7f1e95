"""TUPE: positions and contents have separate scores, each with its own projections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, check_int, check_table
from ropewalk.encodings.absolute import check_rows
from ropewalk.encodings.biases import T5, ScoreBias, T5Site
from ropewalk.encodings.interface import Placement, SharedSite, StackShape


class TupeSite(ScoreBias):
    """Add to the scores the product of the projected vectors of two positions."""

    scale: float

    def __init__(
        self, shape: StackShape, max_positions: int, relative: T5Site | None, reset: bool
    ) -> None:
        super().__init__()
        self.max_positions, self.heads = max_positions, shape.heads
        self.scale = (2 * shape.head_dim) ** -0.5
        self.table = nn.Embedding(max_positions, shape.width)
        self.norm = nn.LayerNorm(shape.width)
        self.query = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.key = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.relative = relative
        self.first = nn.Parameter(torch.zeros(shape.heads)) if reset else None

    def form(self, placement: Placement) -> Tensor:
        for positions in (placement.queries, placement.keys):
            check_rows("tupe", positions, self.max_positions)
        q = self._heads(self.query, placement.queries)
        k = self._heads(self.key, placement.keys)
        bias = self.scale * (q @ k.mT)
        if self.relative is not None:
            bias = bias + self.relative.form(placement)
        return bias if self.first is None else self._reset(bias, self.first, placement)

    def _heads(self, projection: nn.Linear, positions: Tensor) -> Tensor:
        """Return the projected vectors of positions `(…, S)` as `(…, H, S, D)`."""
        projected: Tensor = projection(self.norm(self.table(positions)))
        heads: Tensor = projected.unflatten(-1, (self.heads, -1))
        return heads.transpose(-3, -2)

    def _reset(self, bias: Tensor, first: Tensor, placement: Placement) -> Tensor:
        """Replace the position scores of the query and of the key at position 0.

        From the query at position 0, all position scores are 0. From every other query to the key
        at position 0, the score is one trained number per head.
        """
        at_first = placement.keys[..., None, None, :] == 0
        from_first = placement.queries[..., None, :, None] == 0
        bias = torch.where(at_first, first[:, None, None].to(bias.dtype), bias)
        return bias.masked_fill(from_first, 0.0)


class Tupe(SharedSite):
    """Add `p_i U_q · p_j U_k / sqrt(2 D)` to the scores: a separate score of positions.

    p are trained vectors, normalized; U_q and U_k are projections, different for each head.
    Content scores are also divided by `sqrt(2 D)`, so that the sum starts as large as ordinary
    scores.

    Acts on scores; absolute, and relative too with `relative`. Costs two projections of the
    position vectors and, per head, one S × T product, once for all layers (in each layer for long
    sequences). Has `(max_positions + 2 (1 + H D)) * width` parameters (`relative` adds 32 H,
    `reset` adds H), shared by all layers. Refuses positions from `max_positions` on. Keys can be
    cached.

    The paper has only encoders, all with `reset`; here, causal stacks use the same formulas. The
    authors' U_q and U_k have biases; here the LayerNorm of p has one, which they project.
    Source: Ke et al. 2020, arXiv 2006.15595, eq. 7 to 11; guolinke/TUPE,
    fairseq/modules/transformer_sentence_encoder.py.

    relative: also add T5's 32 buckets (the paper's TUPE-R).
    reset: position 0, the paper's [CLS], has one trained number per head instead of position
        scores.
    """

    max_positions: int
    trained_rows = True

    def __init__(
        self,
        shape: StackShape,
        max_positions: int = 512,
        relative: bool = False,
        reset: bool = False,
    ) -> None:
        super().__init__()
        check_int("max_positions", max_positions, 1)
        check_table("max_positions", max_positions, max_positions * shape.width)
        check_bool("relative", relative)
        check_bool("reset", reset)
        self.max_positions = max_positions
        self.shared = TupeSite(shape, max_positions, T5(shape).shared if relative else None, reset)
