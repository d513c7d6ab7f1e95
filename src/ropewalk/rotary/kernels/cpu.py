"""The rotation in C: an optional extension, which reads and writes each element once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.rotary.reference import Layout

try:
    from ropewalk.rotary.kernels._rotate import rotate as _rotate

    AVAILABLE = True
except ImportError:  # installed where there was no compiler
    AVAILABLE = False
DTYPES = {torch.float32, torch.float64, torch.bfloat16, torch.float16}

# Bytes of x that a thread takes at a time, at least: a few microseconds' work.
CHUNK = 1 << 17


def serves(x: Tensor) -> bool:
    """Whether the extension is there and can walk through x: (B, H, S, D), axes absent in front."""
    return AVAILABLE and x.dtype in DTYPES and 2 <= x.ndim <= 4 and rows_are_whole(x)


def rotate_by_rows(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, first_row: int, layout: Layout
) -> tuple[Tensor, ...] | None:
    """Rotate xs, all of one length, into new tensors by consecutive rows of the tables.

    Returns None, without side effects, where the extension is absent or cannot read the tensors.
    """
    if not AVAILABLE:
        return None
    return _rotate(xs, None, cos, sin, first_row, layout, torch.get_num_threads(), CHUNK)


def rotate(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    """Rotate each x into its out, which may be x itself where pairs stay where they are read."""
    if cos.shape[-1] and not cos.numel():  # no positions, or no batch
        return
    wide = {torch.float64 if x.dtype == torch.float64 else torch.float32 for x in xs}
    if len(wide) > 1:
        for x, out in zip(xs, outs, strict=True):
            rotate((x,), (out,), cos, sin, layout)
        return
    for dtype in wide:
        cos, sin = as_whole_rows(cos, dtype), as_whole_rows(sin, dtype)
    if cos.stride() != sin.stride():  # one is a view of something larger
        cos, sin = cos.contiguous(), sin.contiguous()
    xs = [held(x) for x in xs]
    if _rotate(xs, outs, cos, sin, 0, layout, torch.get_num_threads(), CHUNK) is None:
        shapes = ", ".join(str(tuple(x.shape)) for x in xs)
        raise ValueError(
            f"cos and sin must be tables for x, with a row for each position, "
            f"got shape {tuple(cos.shape)} for {shapes} with start={layout.start}, "
            f"seq_dim={layout.seq_dim}"
        )


def rows_are_whole(x: Tensor) -> bool:
    """Whether the last axis lies in memory element by element."""
    return x.stride(-1) == 1 or x.shape[-1] == 1


def as_whole_rows(table: Tensor, dtype: torch.dtype) -> Tensor:
    """The table in this dtype, its rows whole, its numbers as they are held."""
    if table.dtype == dtype and rows_are_whole(table) and held(table) is table:
        return table
    return held(table.to(dtype)).contiguous()


def held(x: Tensor) -> Tensor:
    """Return x with its numbers in memory of its own.

    A view of other numbers' negatives holds none, and a gradient that torch knows to be all zeros
    has no memory at all.
    """
    return torch.zeros_like(x) if x._is_zerotensor() else x.resolve_neg()
