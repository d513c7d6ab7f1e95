"""How a trained model uses positions: norms by frequency, scores by distance, position left.

Axes: `B` batch, `H` heads, `S` tokens, `D` head_dim, `R` rotary_dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.model import Attention
from ropewalk.rotary import RotarySpec

RotateMethod = Callable[[Tensor, Tensor | None, Placement], tuple[Tensor, Tensor | None]]


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
    sites = {
        m.encoding for m in model.modules() if isinstance(m, Attention)
    }  # layers may share one
    for site in sites:
        vars(site)["rotate"] = _recording(site, seen)
    try:
        yield seen
    finally:
        for site in sites:
            del vars(site)["rotate"]


def pair_norms(x: Tensor, spec: RotarySpec) -> Tensor:
    """Return the root mean square norm of each head's pairs `(H, R/2)`, over all tokens.

    x `(B, H, S, D)` before rotation. The fastest pair comes first.
    """
    turning = x[..., spec.start : spec.start + spec.rotary_dim]
    split = (2, -1) if spec.pairing == "half" else (-1, 2)
    pairs = turning.unflatten(-1, split).double()
    squares = pairs.square().sum(-2 if spec.pairing == "half" else -1)  # (B, H, S, R/2)
    norms: Tensor = squares.mean((0, 2)).sqrt()
    return norms


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


def _recording(site: AttentionEncoding, seen: list[QueriesAndKeys]) -> RotateMethod:
    turn = site.rotate

    def rotate(q: Tensor, k: Tensor | None, placement: Placement) -> tuple[Tensor, Tensor | None]:
        turned_q, turned_k = turn(q, k, placement)
        seen.append(
            QueriesAndKeys(q.detach(), _detached(k), turned_q.detach(), _detached(turned_k))
        )
        return turned_q, turned_k

    return rotate


def _detached(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach()
