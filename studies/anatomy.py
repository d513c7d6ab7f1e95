"""How a trained model uses positions: queries and keys, scores by distance, position left.

Axes: `B` batch, `H` heads, `S` tokens, `D` head_dim, `R` rotary_dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.tools.usage.usage_models import Role, visiting_attention


class QueriesAndKeys(NamedTuple):
    """Queries and keys `(B, H, S, D)` of one attention, before and after rotation."""

    q: Tensor
    k: Tensor | None
    turned_q: Tensor
    turned_k: Tensor | None


@contextmanager
def record_rotations(model: nn.Module) -> Iterator[list[QueriesAndKeys]]:
    """Collect the queries and keys of every attention that runs inside the block, in order."""
    seen: list[QueriesAndKeys] = []

    def record(layer: int, role: Role, before: Tensor, after: Tensor) -> Tensor:
        if role == "q":
            seen.append(QueriesAndKeys(before.detach(), None, after.detach(), None))
        else:
            seen[-1] = seen[-1]._replace(k=before.detach(), turned_k=after.detach())
        return after

    with visiting_attention(model, record):
        yield seen


def score_by_distance(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return the mean score of a query with the key d tokens before it, `(H, S)` for d = 0, 1, …

    q and k `(B, H, S, D)` after rotation. A score is an input of the softmax.
    """
    scores = (q.double() @ k.double().transpose(-2, -1)).mean(0) * scale  # (H, S, S)
    return torch.stack(
        [scores.diagonal(-d, -2, -1).mean(-1) for d in range(scores.shape[-1])], dim=-1
    )


def position_left(hidden: Tensor, ridge: float = 1e-3) -> float:
    """Return how well a linear map predicts a token's position from its vector: held-out R².

    hidden `(B, S, width)`: rows of different text, all at positions 0, 1, … The map is fitted by
    ridge regression (`ridge` times the mean variance) on the first half of the rows and scored on
    the rest: 1 is exact, 0 no better than the mean position, and below 0 worse than that.
    """
    rows, length, width = hidden.shape
    if rows < 2:
        raise ValueError(f"hidden must have at least 2 rows, one of them held out, got {rows}")
    x = hidden.double()
    position = torch.arange(length, dtype=torch.float64).expand(rows, length)
    fit, held = x[: rows // 2].flatten(0, 1), x[rows // 2 :].flatten(0, 1)
    y, wanted = position[: rows // 2].flatten(), position[rows // 2 :].flatten()
    center = fit.mean(0)
    fit, held = fit - center, held - center
    products = fit.mT @ fit
    damping = ridge * products.diagonal().mean() * torch.eye(width, dtype=torch.float64)
    weights = torch.linalg.solve(products + damping, fit.mT @ (y - y.mean()))
    error = (held @ weights + y.mean() - wanted).square().mean()
    return float(1 - error / wanted.var(correction=0))
