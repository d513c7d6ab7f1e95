"""The rotation in C: an optional extension, which reads and writes each element once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

try:
    from ropewalk.rotary.kernels._rotate import rotate as _rotate

    AVAILABLE = True
except ImportError:  # installed where there was no compiler
    AVAILABLE = False
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}

# Below this, starting a thread takes longer than what it would take over.
BYTES_PER_THREAD = 1 << 19


def serves(x: Tensor) -> bool:
    """Whether the extension is there and can walk through x: (B, H, S, D), axes absent in front."""
    return AVAILABLE and x.dtype in DTYPES and 2 <= x.ndim <= 4 and _rows_are_whole(x)


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
    work, kept, size = [], [], 0
    wide, tables = None, (cos, sin)
    for x, out in zip(xs, outs, strict=True):
        if x.is_neg():  # a view of other numbers' negatives
            x = x.resolve_neg()
        arithmetic = torch.float64 if x.dtype == torch.float64 else torch.float32
        if arithmetic != wide:
            wide, tables = arithmetic, (_as(cos, arithmetic), _as(sin, arithmetic))
        work.append(
            (
                *_described(x, out, *tables, seq_dim),
                start, cos.shape[-1], DTYPES[x.dtype],
                read_interleaved, write_interleaved, adjoint,
            )
        )  # fmt: skip
        kept.append((x, tables))  # until the kernel has read them
        size += x.numel() * x.element_size()
    threads = 1
    if size >= 2 * BYTES_PER_THREAD:
        threads = min(torch.get_num_threads(), size // BYTES_PER_THREAD)
    _rotate(threads, *work)


def _described(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, seq_dim: int) -> tuple[int, ...]:
    """Where the numbers of one tensor are: the first 17 integers that `read_work` in C reads."""
    stride, table = _three(x.stride(), seq_dim, 0), cos.stride()
    return (
        x.data_ptr(), out.data_ptr(), cos.data_ptr(), sin.data_ptr(),
        *_three(x.shape, seq_dim, 1), x.shape[-1],
        *stride,
        *(stride if out is x else _three(out.stride(), seq_dim, 0)),
        table[0] if len(table) > 2 and cos.shape[0] > 1 else 0, 0, table[-2],
    )  # fmt: skip


def _three(of_axes: Sequence[int], seq_dim: int, absent: int) -> tuple[int, int, int]:
    """Of the axes batch, heads and sequence, in whichever order x has them."""
    if len(of_axes) == 4:
        batch, heads, length, _ = of_axes
    elif len(of_axes) == 3:  # in front of the sequence a batch, or heads; behind it, heads
        batch, heads, length = of_axes[0], absent, of_axes[1]
        if seq_dim == -3:
            return absent, length, batch
    else:
        return absent, absent, of_axes[0]
    return (batch, length, heads) if seq_dim == -3 else (batch, heads, length)


def _rows_are_whole(x: Tensor) -> bool:
    return x.stride(-1) == 1 or x.shape[-1] == 1


def _as(table: Tensor, dtype: torch.dtype) -> Tensor:
    """The table in this dtype, its rows whole."""
    if table.dtype == dtype and _rows_are_whole(table) and not table.is_neg():
        return table
    return table.to(dtype).resolve_neg().contiguous()
