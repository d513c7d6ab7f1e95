"""Attention that computes the bias of each pair inside its kernel, under torch.compile.

torch's flex_attention does not store the scores and the bias of all pairs if it is compiled to a
kernel. Uncompiled, or with a backend that writes no kernel (`eager`), it stores them all. So it
is used only in compiled models, which need a C++ compiler and some seconds. It has no backward
on CPU: training attends in the same way as without it.

Axes: `B` batch, `H` query heads, `K` key/value heads, `S` queries, `T` keys,
`D` head_dim.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from ropewalk.encodings import Placement
from ropewalk.encodings.biases import PairBias

#: Where its CPU kernel was tested. torch 2.13's kernel for AVX2 gives wrong numbers.
TRIED = (
    sys.platform == "linux"
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and torch.__version__ >= "2.13"
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def serves(q: Tensor, k: Tensor) -> bool:
    """Return whether q `(B, H, S, D)` and k are compiled on a platform where the kernel was tested.

    The kernel is compiled for one size. A compiler that has seen several leaves sizes open, and
    then attention uses blocks: compiling for each length takes seconds, and fails at the ninth.
    """
    if not (TRIED and torch.compiler.is_compiling()) or torch.compiler.is_exporting():
        return False  # other readers of an exported program do not know the kernel
    plain = not (torch.is_grad_enabled() or torch._C._functorch.is_batchedtensor(q))  # of vmap
    if not plain or q.device.type != "cpu" or q.dtype not in DTYPES:
        return False
    # This module of torch imports sympy, which takes a second.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return all(statically_known_true(n < 2**62) for n in (*q.shape, *k.shape))


def attend(
    encoding: PairBias,
    rows: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    placement: Placement,
    mask: Tensor | None,
    causal: bool,
) -> Tensor:
    """Attend from q `(B, H, S, D)` to k and v `(B, K, T, D)`: the output `(B, H, S, D)`.

    rows are what the encoding looks up, `(H, …)`; mask is boolean and broadcasts to `(B, H, S, T)`;
    with `causal`, the last query is at the last key. A query that may not look at any key gets
    zeros. Sizes are fixed (see `serves`).
    """
    for x in (q, k, placement.queries, placement.keys, *([] if mask is None else [mask])):
        for n in x.shape:  # if sizes are left open, torch 2.13 writes C++ that does not compile
            operator.index(n)
    of_head, query, key = _stored(rows), _reader(placement.queries), _reader(placement.keys)

    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + encoding.pair(of_head, h, query(b, i), key(b, j))

    out: Tensor = flex_attention(
        _stored(q),
        _stored(k.to(q.dtype)),
        _stored(v.to(q.dtype)),
        score_mod=biased,
        block_mask=_seen(q, k, mask, causal),
        scale=encoding.scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.to(v.dtype)


def _seen(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> BlockMask | None:
    """Return which pairs are seen; blocks without any are not computed."""
    if mask is None and not causal:
        return None
    queries, keys, device = q.shape[-2], k.shape[-2], q.device
    last = _stored(torch.arange(keys - queries, keys, device=device))  # the key at each query
    may = None if mask is None else _reader(mask)

    def looks(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        back: Tensor = j <= last[i]
        if may is None:
            return back
        return may(b, h, i, j) & back if causal else may(b, h, i, j)

    outer = (1,) * 4 if mask is None else (1,) * (4 - mask.ndim) + mask.shape
    batch, heads = (n if n > 1 else None for n in outer[:2])
    return create_block_mask(looks, batch, heads, queries, keys, device=str(device))


def _reader(x: Tensor) -> Callable[..., Tensor]:
    """Return a function that reads x by an index per axis; x's own axes are the last ones."""
    stored, many = _stored(x), [n > 1 for n in x.shape]

    def read(*at: Tensor) -> Tensor:
        own = at[len(at) - len(many) :]
        found: Tensor = stored[tuple(i if n else 0 for i, n in zip(own, many, strict=True))]
        return found

    return read


@torch.library.custom_op("ropewalk::stored", mutates_args=())
def _stored(x: Tensor) -> Tensor:
    """Copy x without the compiler seeing it.

    torch 2.13's kernel for CPU reads only tensors with their own memory: it fails on views, and on
    tensors that the compiler computes on the way, such as a range of positions.
    """
    return x.clone(memory_format=torch.contiguous_format)


@_stored.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)
