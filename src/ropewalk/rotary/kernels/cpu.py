"""The rotation in C: an optional extension that reads and writes each element once."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.rotary.reference import Layout

# The instruction set in use, portable, avx2, avx512 or avx512bf16; None without the extension.
INSTRUCTIONS: str | None = None


def limit_instructions(capability: str) -> str:
    """Use at most what torch uses with this ATEN_CPU_CAPABILITY, and return the set in use."""
    return _limit({"default": "portable", "avx2": "avx2"}.get(capability, "avx512bf16"))


try:
    from ropewalk.rotary.kernels._rotate import limit as _limit
    from ropewalk.rotary.kernels._rotate import rotate as _rotate

    AVAILABLE = True
    # torch's own switch, so that both can be measured as on an older processor
    INSTRUCTIONS = limit_instructions(os.environ.get("ATEN_CPU_CAPABILITY", ""))
except ImportError:  # installed without a compiler
    AVAILABLE = False
DTYPES = {torch.float32, torch.float64, torch.bfloat16, torch.float16}

# The least bytes of x that a thread takes at a time: work for a few microseconds.
CHUNK = 1 << 17


def serves(x: Tensor) -> bool:
    """Return whether the extension is installed and can read x: (B, H, S, D) or fewer axes."""
    return AVAILABLE and x.dtype in DTYPES and 2 <= x.ndim <= 4 and rows_are_contiguous(x)


def rotate_by_rows(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, first_row: int, layout: Layout
) -> tuple[Tensor, ...] | None:
    """Rotate xs, all of one length, into new tensors by consecutive rows of the tables.

    Returns None, without side effects, if the extension is absent or cannot read the tensors.
    """
    if not AVAILABLE:
        return None
    return _rotate(xs, None, cos, sin, first_row, layout, torch.get_num_threads(), CHUNK)


def rotate(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    """Rotate each x into its out, which may be x itself if pairs are written as they are read."""
    if cos.shape[-1] and not cos.numel():  # no positions, or no batch
        return
    wide = {torch.float64 if x.dtype == torch.float64 else torch.float32 for x in xs}
    if len(wide) > 1:
        for x, out in zip(xs, outs, strict=True):
            rotate((x,), (out,), cos, sin, layout)
        return
    for dtype in wide:
        cos, sin = as_contiguous_rows(cos, dtype), as_contiguous_rows(sin, dtype)
    if cos.stride() != sin.stride():  # one is a view of something larger
        cos, sin = cos.contiguous(), sin.contiguous()
    xs = [materialized(x) for x in xs]
    if _rotate(xs, outs, cos, sin, 0, layout, torch.get_num_threads(), CHUNK) is None:
        shapes = ", ".join(str(tuple(x.shape)) for x in xs)
        raise ValueError(
            f"cos and sin must be tables for x, with a row for each position, "
            f"got shape {tuple(cos.shape)} for {shapes} with start={layout.start}, "
            f"seq_dim={layout.seq_dim}"
        )


def rows_are_contiguous(x: Tensor) -> bool:
    """Return whether the last axis is contiguous in memory."""
    return x.stride(-1) == 1 or x.shape[-1] == 1


def as_contiguous_rows(table: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the table in this dtype, with contiguous rows, and its values in memory."""
    if table.dtype == dtype and rows_are_contiguous(table) and materialized(table) is table:
        return table
    return materialized(table.to(dtype)).contiguous()


def materialized(x: Tensor) -> Tensor:
    """Return x with its values in memory.

    Memory of a negated view has the values without their sign, and a gradient that torch knows to
    be all zeros has no memory.
    """
    return torch.zeros_like(x) if x._is_zerotensor() else x.resolve_neg()
