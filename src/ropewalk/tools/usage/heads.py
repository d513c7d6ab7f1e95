"""Position-like and content-like heads, from attention probabilities.

Axes: B batch, H heads, S tokens, N distances.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.tools.usage.facts import CONTENT, POSITION, Head, Kind

LEAST_VARIANCE = 1e-4  # of scores, below which nothing is explained: they differ by about 0.01


class Attending:
    """Sums over the attention of one layer, row by row; `heads` returns what they say.

    Only queries that have a key at each distance count, so that each distance has as many scores
    as any other. Then the variance within queries that distance explains is that of the means by
    distance.
    """

    def __init__(self, length: int, causal: bool) -> None:
        S = length
        self.distances = torch.arange(0, S // 2) if causal else torch.arange(-(S // 4), S // 4 + 1)
        self.queries = torch.arange(S // 2, S) if causal else torch.arange(S // 4, S - S // 4)
        self._seen: Tensor | None = None  # distances that are not masked
        self._scores = self._squares = self._mass = self._first = torch.zeros(())
        self._count = 0

    def add(self, probabilities: Tensor) -> None:
        """Add the attention of some rows, `(B, H, S, S)`."""
        p = probabilities.detach().cpu()[:, :, self.queries]
        keys = self.queries[:, None] - self.distances
        near = p.gather(-1, keys.expand(*p.shape[:2], *keys.shape)).double()  # (B, H, queries, N)
        if self._seen is None:
            self._seen = near.amax((0, 1, 2)) > 0  # a window of attention ends somewhere
        # The logarithm is the score, up to a constant of the query, which centering removes.
        scores = near[..., self._seen].clamp_min(_smallest(p.dtype)).log()
        scores = scores - scores.mean(-1, keepdim=True)
        self._scores = self._scores + scores.sum((0, 2))
        self._squares = self._squares + scores.square().sum((0, 2)).sum(-1)
        self._mass = self._mass + near.sum((0, 2))
        self._first = self._first + p[..., 0].double().sum((0, 2))
        self._count += p.shape[0] * p.shape[2]

    def heads(self) -> list[Head]:
        """Return what each head does."""
        explained = self._scores.square().sum(-1) / self._count
        variance = self._squares / max(1, self._count * self._scores.shape[-1])
        shares = explained / self._squares
        mass, first = self._mass / self._count, self._first / self._count
        most = mass.argmax(-1)
        found = []
        for head in range(len(mass)):
            share = float(shares[head]) if float(variance[head]) > LEAST_VARIANCE else None
            at, of_first = float(mass[head, most[head]]), float(first[head])
            kind = kind_of(share, at, of_first)
            found.append(Head(share, int(self.distances[most[head]]), at, of_first, kind))
        return found


def _smallest(dtype: torch.dtype) -> float:
    """Return the smallest number above 0: in float16, `tiny` is not below many probabilities."""
    return torch.finfo(dtype).tiny * torch.finfo(dtype).eps


def kind_of(share: float | None, at_distance: float, at_first: float) -> Kind | None:
    """Return the name of a head, or None if it is neither clearly; `Head` has the rule."""
    if at_distance >= POSITION or (share is not None and share >= POSITION):
        return "position"
    if share is not None and share <= CONTENT and at_first < POSITION:
        return "content"
    return None
