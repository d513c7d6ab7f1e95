"""Rotation of pairs on a GPU, one tile of rows per program, as _rotate.c does on a CPU.

gpu.py imports this file at the first rotation, since it imports triton. NVIDIA and AMD are
supported.

A program takes BLOCK_S positions of one batch row and BLOCK_H heads of q or of k, so that it reads
cos and sin once for all these heads. A row's pairs are read in the order of memory: those of `half`
as two runs, interleaved ones as one run, which is then split. Arithmetic is in float32, without
fused multiply-add (gpu.py disables it), so that results equal the reference bit for bit. They are
rounded once, when stored.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["length", "q_heads", "k_heads"])
def rotate(
    q, q_out, q_heads, q_b, q_h, q_s, q_out_b, q_out_h, q_out_s,
    k, k_out, k_heads, k_b, k_h, k_s, k_out_b, k_out_h, k_out_s,
    cos, sin, table_b, table_s,
    length, sign,
    START: tl.constexpr, PAIRS: tl.constexpr, DIM: tl.constexpr,
    READ_INTERLEAVED: tl.constexpr, WRITE_INTERLEAVED: tl.constexpr,
    COPIES: tl.constexpr, PAIRED: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Rotate q, and, if PAIRED, k.

    Names of strides end in the axis: b batch, h heads, s sequence. sign is -1.0 for the adjoint,
    else 1.0. The grid has a column for each block of q's heads, then for each block of k's. Its
    rows are the blocks of positions, batch row by batch row.
    """
    blocks = (length + BLOCK_S - 1) // BLOCK_S
    row, column = tl.program_id(0), tl.program_id(1)
    b = (row // blocks).to(tl.int64)
    s = ((row % blocks) * BLOCK_S + tl.arange(0, BLOCK_S)).to(tl.int64)[:, None, None]
    pair = tl.arange(0, BLOCK_P)[None, None, :]
    inside = (s < length) & (pair < PAIRS)
    table = b * table_b + s * table_s + pair
    c = tl.load(cos + table, mask=inside, other=0.0)
    t = sign * tl.load(sin + table, mask=inside, other=0.0)

    q_columns = (q_heads + BLOCK_H - 1) // BLOCK_H
    if column < q_columns or not PAIRED:
        h = (column * BLOCK_H + tl.arange(0, BLOCK_H)).to(tl.int64)[None, :, None]
        rows = (s < length) & (h < q_heads)
        rotate_rows(
            q + b * q_b + h * q_h + s * q_s,
            q_out + b * q_out_b + h * q_out_h + s * q_out_s,
            rows, c, t, START, PAIRS, DIM, READ_INTERLEAVED, WRITE_INTERLEAVED, COPIES,
            BLOCK_S, BLOCK_H, BLOCK_P,
        )  # fmt: skip
    else:
        h = ((column - q_columns) * BLOCK_H + tl.arange(0, BLOCK_H)).to(tl.int64)[None, :, None]
        rows = (s < length) & (h < k_heads)
        rotate_rows(
            k + b * k_b + h * k_h + s * k_s,
            k_out + b * k_out_b + h * k_out_h + s * k_out_s,
            rows, c, t, START, PAIRS, DIM, READ_INTERLEAVED, WRITE_INTERLEAVED, COPIES,
            BLOCK_S, BLOCK_H, BLOCK_P,
        )  # fmt: skip


@triton.jit
def rotate_rows(
    x, out, rows, c, t,
    START: tl.constexpr, PAIRS: tl.constexpr, DIM: tl.constexpr,
    READ_INTERLEAVED: tl.constexpr, WRITE_INTERLEAVED: tl.constexpr, COPIES: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Rotate the rows that x points to, and write them to those that out points to.

    y1 = x1·c - x2·t
    y2 = x2·c + x1·t
    """
    pair = tl.arange(0, BLOCK_P)[None, None, :]
    both = tl.arange(0, 2 * BLOCK_P)[None, None, :]
    one_of_each = rows & (pair < PAIRS)
    both_of_each = rows & (both < 2 * PAIRS)
    if READ_INTERLEAVED:
        found = tl.load(x + (START + both), mask=both_of_each).to(tl.float32)
        x1, x2 = tl.split(tl.reshape(found, (BLOCK_S, BLOCK_H, BLOCK_P, 2)))
    else:
        x1 = tl.load(x + (START + pair), mask=one_of_each).to(tl.float32)
        x2 = tl.load(x + (START + PAIRS + pair), mask=one_of_each).to(tl.float32)
    y1 = (x1 * c - x2 * t).to(out.dtype.element_ty)
    y2 = (x2 * c + x1 * t).to(out.dtype.element_ty)
    if WRITE_INTERLEAVED:
        y = tl.reshape(tl.join(y1, y2), (BLOCK_S, BLOCK_H, 2 * BLOCK_P))
        tl.store(out + (START + both), y, mask=both_of_each)
    else:
        tl.store(out + (START + pair), y1, mask=one_of_each)
        tl.store(out + (START + PAIRS + pair), y2, mask=one_of_each)
    if COPIES:
        copy(x, out, rows, 0, START)
        copy(x, out, rows, START + 2 * PAIRS, DIM)


@triton.jit
def copy(x, out, rows, FIRST: tl.constexpr, END: tl.constexpr):
    """Copy dimensions that do not rotate to out, 64 at a time."""
    STEP: tl.constexpr = 64
    for first in tl.static_range(FIRST, END, STEP):
        d = first + tl.arange(0, STEP)[None, None, :]
        tl.store(out + d, tl.load(x + d, mask=rows & (d < END)), mask=rows & (d < END))
