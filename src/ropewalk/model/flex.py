"""Attention that computes the bias of each pair inside its kernel, where torch.compile is at work.

torch's flex_attention holds neither the scores nor the bias of all pairs once it is compiled;
uncompiled, it holds them all. So it serves those who compile, who have a C++ compiler and give it
seconds. It has no backward on CPU, and in training queries attend as they do without it.

Axes: ``B`` batch, ``H`` query heads, ``K`` key/value heads, ``S`` queries, ``T`` keys,
``D`` head_dim.
"""

from __future__ import annotations

import operator
import sys

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from ropewalk.encodings import Placement
from ropewalk.encodings.bias import PairBias

#: Where its kernel for CPU was tried: it is young, and what it cannot do is an error.
TRIED = (
    sys.platform == "linux"
    and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    and torch.__version__ >= "2.13"
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def serves(q: Tensor) -> bool:
    """Tell whether queries ``(B, H, S, D)`` are compiled to where a kernel for them was tried."""
    compiled = torch.compiler.is_compiling() and not torch.is_grad_enabled()
    return compiled and TRIED and q.device.type == "cpu" and q.dtype in DTYPES


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
    """Attend from q ``(B, H, S, D)`` to k and v ``(B, K, T, D)``: the output ``(B, H, S, D)``.

    rows are what the encoding looks up, ``(H, …)``; mask is boolean and broadcasts to
    ``(B, H, S, T)``; looking back (``causal``), the last query's key is the last one. A query that
    may look nowhere gets zeros. Each length is compiled anew.
    """
    # Of lengths that are left open, torch 2.13 makes C++ that does not compile. This fixes them.
    operator.index(q.shape[-2]), operator.index(k.shape[-2])
    rows = _stored(rows)
    queries, keys = _stored(placement.queries), _stored(placement.keys)
    batched = queries.ndim > 1

    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        query, key = (queries[b, i], keys[b, j]) if batched else (queries[i], keys[j])
        return score + encoding.pair(rows, h, query, key)

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
    """Say which pairs are seen, and so which blocks of them need not be computed."""
    if mask is None and not causal:
        return None
    queries, keys, device = q.shape[-2], k.shape[-2], q.device
    last = _stored(torch.arange(keys - queries, keys, device=device))  # what each looks back from
    given = None if mask is None else _stored(mask)
    batch, heads, each = (False,) * 3 if mask is None else (n > 1 for n in mask.shape[:3])

    def looks(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        back: Tensor = j <= last[i]
        if given is None:
            return back
        may: Tensor = given[b if batch else 0, h if heads else 0, i if each else 0, j]
        return may & back if causal else may

    return create_block_mask(
        looks,
        q.shape[0] if batch else None,
        q.shape[1] if heads else None,
        queries,
        keys,
        device=str(device),
    )


@torch.library.custom_op("ropewalk::stored", mutates_args=())
def _stored(x: Tensor) -> Tensor:
    """Copy x where the compiler does not see it.

    torch 2.13's kernel for CPU reads only tensors that have memory of their own: it fails on views,
    and on what the compiler means to compute on the way, such as a range of positions.
    """
    return x.clone(memory_format=torch.contiguous_format)


@_stored.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)
