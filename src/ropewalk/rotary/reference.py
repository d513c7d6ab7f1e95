"""The formula of the rotation in plain torch; every kernel must agree with it.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.rotary.spec import Pairing


class Layout(NamedTuple):
    """Where pairs are in a tensor and how they rotate.

    read_interleaved, write_interleaved: whether pairs are read, and written, as 2i and 2i + 1; if
        not, as i and i + R/2. start: the first dimension that rotates. seq_dim: -2 for (B, H, S,
        D), -3 for (B, S, H, D). adjoint: negate the angles, and exchange
        `read_interleaved` and `write_interleaved`.
    """

    read_interleaved: bool
    write_interleaved: bool
    start: int = 0
    seq_dim: int = -2
    adjoint: bool = False

    @classmethod
    def of(
        cls,
        pairing: Pairing,
        write_pairing: Pairing | None = None,
        start: int = 0,
        seq_dim: int = -2,
        adjoint: bool = False,
    ) -> Layout:
        """Return the layout of these pairings; by default, pairs are written as they are read."""
        write = pairing if write_pairing is None else write_pairing
        return cls(pairing == "interleaved", write == "interleaved", start, seq_dim, adjoint)


def rotate_reference(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Compute what `rotate` returns; `rotate` has checked the arguments."""
    cos, sin = _broadcast(x, cos, layout.seq_dim), _broadcast(x, sin, layout.seq_dim)
    read, write = layout.read_interleaved, layout.write_interleaved
    if layout.adjoint:
        sin, read, write = -sin, write, read
    rotary_dim = 2 * cos.shape[-1]
    if rotary_dim == x.shape[-1]:
        return _rotate_pairs(x, cos, sin, read, write)
    sizes = [layout.start, rotary_dim, x.shape[-1] - layout.start - rotary_dim]
    before, middle, after = torch.split(x, sizes, dim=-1)
    return torch.cat((before, _rotate_pairs(middle, cos, sin, read, write), after), dim=-1)


def _rotate_pairs(
    x: Tensor, cos: Tensor, sin: Tensor, read_interleaved: bool, write_interleaved: bool
) -> Tensor:
    """Apply the formula (RoFormer, arXiv 2104.09864, eq. 34).

    The tables have cos and sin of φ = m·f_i. The pair (x1, x2) at position m becomes

        y1 = x1·cos φ - x2·sin φ
        y2 = x2·cos φ + x1·sin φ

    The paper's pairs are interleaved; with `half`, only the places of x1 and x2 differ.
    """
    if read_interleaved:
        x1, x2 = torch.unflatten(x, -1, (-1, 2)).unbind(dim=-1)
    else:
        x1, x2 = x.chunk(2, dim=-1)
    wide = torch.promote_types(x.dtype, torch.float32)
    x1, x2, cos, sin = (t.to(wide) for t in (x1, x2, cos, sin))
    y1 = (x1 * cos - x2 * sin).to(x.dtype)
    y2 = (x2 * cos + x1 * sin).to(x.dtype)
    if write_interleaved:
        return torch.stack((y1, y2), dim=-1).flatten(-2)
    return torch.cat((y1, y2), dim=-1)


def _broadcast(x: Tensor, table: Tensor, seq_dim: int) -> Tensor:
    """Reshape a table (S, R/2), (B, S, R/2) or (B, N, S, R/2) so that it broadcasts with x.

    A table (B, N, S, R/2) has N sets of angles; each set serves H/N consecutive heads of x.
    """
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
