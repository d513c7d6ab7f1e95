"""The rotation on a GPU of NVIDIA or AMD: one launch for q and k, if triton is installed.

The kernel is in _rotate_triton.py. The first rotation on a GPU imports it, and triton. If it cannot
be compiled (triton needs a C compiler; an old GPU may lack bfloat16), a warning is issued, and
plain torch computes the same in more passes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec

import torch
from torch import Tensor

from ropewalk.rotary.kernels.cpu import as_contiguous_rows, materialized, rows_are_contiguous
from ropewalk.rotary.reference import Layout, rotate_reference

AVAILABLE = find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # triton's own switch: tensors on a CPU
DTYPES = {torch.float32, torch.bfloat16, torch.float16}

# Pairs of a program and of a thread: for 16-bit elements, two loads of 16 bytes each.
PAIRS_PER_PROGRAM = 1024
PAIRS_PER_THREAD = 8
HEADS_PER_PROGRAM = 8  # from here on, cos and sin are a small part of what a program reads
MOST_WARPS = 8
WARP = 64 if torch.version.hip else 32

_failed: set[tuple[torch.device, torch.dtype]] = set()


def serves(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Return whether the kernel can rotate x: (B, H, S, D) or fewer axes, on a GPU."""
    if not (AVAILABLE and x.is_cuda and x.device == cos.device == sin.device):
        return False
    return x.dtype in DTYPES and 2 <= x.ndim <= 4 and rows_are_contiguous(x) and cos.shape[-1] > 0


def rotate(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    """Rotate each x into its out, which may be x itself if pairs are written as they are read.

    Two consecutive tensors of the same batch, length and head_dim share a launch.
    """
    cos, sin = as_contiguous_rows(cos, torch.float32), as_contiguous_rows(sin, torch.float32)
    waiting = [(materialized(x), out) for x, out in zip(xs, outs, strict=True)]
    while waiting:
        pair = len(waiting) > 1 and _can_share_launch(waiting[0][0], waiting[1][0], layout.seq_dim)
        count = 2 if pair else 1
        now, waiting = waiting[:count], waiting[count:]
        _rotate(now, cos, sin, layout)


def _rotate(
    tensors: Sequence[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    kinds = {(x.device, x.dtype) for x, _ in tensors}
    if not kinds & _failed:
        try:
            return _launch(tensors, cos, sin, layout)
        except Exception as error:
            _failed.update(kinds)
            named = " and ".join(sorted(f"{dtype} on {device}" for device, dtype in kinds))
            warnings.warn(
                f"ropewalk's GPU kernel does not run for {named}; torch rotates more slowly "
                f"instead: {type(error).__name__}: {error}",
                stacklevel=2,
            )
    # The caller has already swapped reading and writing for the adjoint.
    sin, layout = -sin if layout.adjoint else sin, layout._replace(adjoint=False)
    for x, out in tensors:
        out.copy_(rotate_reference(x, cos, sin, layout))
    return None


def _launch(
    tensors: Sequence[tuple[Tensor, Tensor]], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    from ropewalk.rotary.kernels import _rotate_triton

    x, seq_dim = tensors[0][0], layout.seq_dim
    batch, _, length = _three(x.shape, seq_dim, 1)
    heads, described = [], []
    for x, out in tensors:
        heads.append(_three(x.shape, seq_dim, 1)[1])
        strides = _three(x.stride(), seq_dim, 0)
        out_strides = _three(out.stride(), seq_dim, 0)
        described.append((x, out, heads[-1], *strides, *out_strides))
    pairs = cos.shape[-1]
    block_s, block_h, block_p, warps = blocks(length, max(heads), pairs)
    grid = batch * -(-length // block_s), sum(-(-n // block_h) for n in heads)
    if 0 in grid:
        return
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        _rotate_triton.rotate[grid](
            *described[0],
            *described[-1],
            cos, sin, cos.stride(0) if cos.ndim > 2 and cos.shape[0] > 1 else 0, cos.stride(-2),
            length, -1.0 if layout.adjoint else 1.0,
            layout.start, pairs, x.shape[-1],
            layout.read_interleaved, layout.write_interleaved,
            any(x is not out for x, out in tensors), len(tensors) == 2,
            block_s, block_h, block_p,
            num_warps=warps, enable_fp_fusion=False,
        )  # fmt: skip


def blocks(length: int, heads: int, pairs: int) -> tuple[int, int, int, int]:
    """Return the positions, heads and pairs of a program, powers of two, and its warps."""
    block_p = _power_of_two(pairs)
    rows = max(1, PAIRS_PER_PROGRAM // block_p)
    block_s = min(_power_of_two(length), max(1, rows // HEADS_PER_PROGRAM))
    block_h = min(_power_of_two(heads), rows // block_s)
    block_s = min(_power_of_two(length), rows // block_h)
    warps = block_s * block_h * block_p // (PAIRS_PER_THREAD * WARP)
    return block_s, block_h, block_p, max(1, min(MOST_WARPS, warps))


def _three(of_axes: Sequence[int], seq_dim: int, absent: int) -> tuple[int, int, int]:
    """Return the values of the axes batch, heads and sequence, whatever their order in x."""
    if len(of_axes) == 4:
        batch, heads, length, _ = of_axes
    elif len(of_axes) == 3:  # before the sequence: a batch, or heads; after it: heads
        batch, heads, length = of_axes[0], absent, of_axes[1]
        if seq_dim == -3:
            return absent, length, batch
    else:
        return absent, absent, of_axes[0]
    return (batch, length, heads) if seq_dim == -3 else (batch, heads, length)


def _power_of_two(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _can_share_launch(x: Tensor, other: Tensor, seq_dim: int) -> bool:
    sizes, others = _three(x.shape, seq_dim, 1), _three(other.shape, seq_dim, 1)
    return sizes[::2] == others[::2] and x.shape[-1] == other.shape[-1]
