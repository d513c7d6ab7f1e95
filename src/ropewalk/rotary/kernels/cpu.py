"""The rotation in C: an optional extension, which reads and writes each element once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

try:
    from ropewalk.rotary.kernels import _rotate
except ImportError:  # installed where there was no compiler
    _rotate = None  # type: ignore[assignment]

AVAILABLE = _rotate is not None
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}

# Below this, starting a thread takes longer than what it would take over.
BYTES_PER_THREAD = 1 << 19


def serves(x: Tensor) -> bool:
    """Whether the extension is there and can walk through x: (B, H, S, D), axes absent in front."""
    return AVAILABLE and x.dtype in DTYPES and 2 <= x.ndim <= 4 and _is_plain(x)


def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    read_interleaved: bool,
    write_interleaved: bool,
    start: int,
    seq_dim: int,
    adjoint: bool,
) -> None:
    """Rotate each x into its out, which may be x itself where pairs stay where they are read."""
    work, size = [], 0
    for x, out in zip(xs, outs, strict=True):
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        tables = _as(cos, wide), _as(sin, wide)
        layout = start, read_interleaved, write_interleaved, adjoint
        work.append((_described(x, out, *tables, seq_dim, *layout), tables))
        size += x.numel() * x.element_size()
    threads = (
        min(torch.get_num_threads(), size // BYTES_PER_THREAD) if size > BYTES_PER_THREAD else 1
    )
    _rotate.rotate(threads, *[described for described, _ in work])


def _described(
    x: Tensor,
    out: Tensor,
    cos: Tensor,
    sin: Tensor,
    seq_dim: int,
    start: int,
    read_interleaved: bool,
    write_interleaved: bool,
    adjoint: bool,
) -> tuple[int, ...]:
    """The integers by which the extension knows one tensor: `read_work` in _rotate.c reads them."""
    sizes, x_strides = _three(x, x.shape, seq_dim), _three(x, x.stride(), seq_dim, absent=0)
    table = cos.stride()
    batch = table[0] if cos.ndim > 2 and cos.shape[0] > 1 else 0
    return (
        x.data_ptr(), out.data_ptr(), cos.data_ptr(), sin.data_ptr(),
        *sizes, x.shape[-1],
        *x_strides,
        *_three(out, out.stride(), seq_dim, absent=0),
        batch, 0, table[-2],
        start, cos.shape[-1], DTYPES[x.dtype], read_interleaved, write_interleaved, adjoint,
    )  # fmt: skip


def _three(
    x: Tensor, of_axes: Sequence[int], seq_dim: int, absent: int = 1
) -> tuple[int, int, int]:
    """Of the axes batch, heads and sequence, whichever order x has them in."""
    if x.ndim == 4:
        batch, heads, length = of_axes[:3]
        return (batch, length, heads) if seq_dim == -3 else (batch, heads, length)
    if x.ndim == 3:  # a batch or heads in front; behind the sequence, heads
        first, second = of_axes[:2]
        return (absent, second, first) if seq_dim == -3 else (first, absent, second)
    return absent, absent, of_axes[0]


def _is_plain(x: Tensor) -> bool:
    """Whether each row of x lies in one piece, and holds its numbers as they are."""
    return (x.stride(-1) == 1 or x.shape[-1] == 1) and not x.is_neg()


def _as(table: Tensor, dtype: torch.dtype) -> Tensor:
    """The table in this dtype, its rows whole."""
    if table.dtype == dtype and _is_plain(table):
        return table
    return table.to(dtype).resolve_neg().contiguous()
