"""The rotation in plain torch, to be read beside the formula; every faster form must agree with it.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.rotary.spec import Pairing


def turned(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    read: Pairing,
    write: Pairing,
    start: int,
    seq_dim: int,
    adjoint: bool,
) -> Tensor:
    """What `rotate` gives for arguments that it has checked; pairs are read and written so."""
    cos, sin = _beside(x, cos, seq_dim), _beside(x, sin, seq_dim)
    if adjoint:
        sin, read, write = -sin, write, read
    turning = 2 * cos.shape[-1]
    if turning == x.shape[-1]:
        return _turn(x, cos, sin, read, write)
    sizes = [start, turning, x.shape[-1] - start - turning]
    before, middle, after = torch.split(x, sizes, dim=-1)
    return torch.cat((before, _turn(middle, cos, sin, read, write), after), dim=-1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, read: Pairing, write: Pairing) -> Tensor:
    """The formula (RoFormer, arXiv 2104.09864, eq. 34).

    With φ = m·theta_i, whose cos and sin the tables hold, the pair (x1, x2) at position m becomes

        y1 = x1·cos φ - x2·sin φ
        y2 = x2·cos φ + x1·sin φ

    in the paper for interleaved pairs; for `half` they are only found elsewhere.
    """
    if read == "half":
        x1, x2 = x.chunk(2, dim=-1)
    else:
        x1, x2 = torch.unflatten(x, -1, (-1, 2)).unbind(dim=-1)
    x1, x2, cos, sin = (t.to(_arithmetic(x)) for t in (x1, x2, cos, sin))
    y1 = (x1 * cos - x2 * sin).to(x.dtype)
    y2 = (x2 * cos + x1 * sin).to(x.dtype)
    if write == "half":
        return torch.cat((y1, y2), dim=-1)
    return torch.stack((y1, y2), dim=-1).flatten(-2)


def _arithmetic(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _beside(x: Tensor, table: Tensor, seq_dim: int) -> Tensor:
    """`table` with axes of size 1 where x has heads, so that the two broadcast."""
    if table.ndim == 4:
        heads = x.shape[1 if seq_dim == -2 else 2]
        if table.shape[1] not in (1, heads):
            table = table.repeat_interleave(heads // table.shape[1], dim=1)
        return table if seq_dim == -2 else table.transpose(1, 2)
    shape = [1] * x.ndim
    shape[seq_dim], shape[-1] = table.shape[-2:]
    if table.ndim == 3 and x.ndim > -seq_dim:
        shape[0] = table.shape[0]
    return table.reshape(shape)
