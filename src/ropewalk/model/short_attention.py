"""Softmax attention on a CPU, without gradients, of few queries or to few keys.

These are the steps of generation, and sentences. A kernel in C, an optional extension, serves
float32. Otherwise torch's products serve few queries.

Axes: `B` batch, `H` heads, `S` queries, `T` keys, `D` head_dim.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.rotary.kernels.operator import are_plain, is_transformed

#: With more queries, torch's fused kernel is as fast as products.
FEW_QUERIES = 8
#: With more keys, torch's fused kernel is as fast as the kernel in C. With 43, it takes longer.
FEW_KEYS = 64
#: With AVX-512, torch's softmax over fewer keys takes 4 to 12 times as long.
FAST_KEYS = 16
#: On CPU, torch computes matrix products with fewer multiplications without vector instructions.
FAST_PRODUCT = 400


def limit_instructions(capability: str) -> str:
    """Use at most what torch uses with this ATEN_CPU_CAPABILITY, and return the set in use."""
    return _limit("portable" if capability == "default" else "avx2")


# The kernel's instruction set, portable or avx2; None without the extension.
INSTRUCTIONS: str | None = None
try:
    from ropewalk.model._attend import attend as _attend
    from ropewalk.model._attend import limit as _limit

    INSTRUCTIONS = limit_instructions(os.environ.get("ATEN_CPU_CAPABILITY", ""))
except ImportError:  # installed without a compiler
    pass


def suits(q: Tensor, k: Tensor) -> bool:
    """Return whether `attend` is faster for q `(B, H, S, D)` and k than torch's fused CPU kernel.

    For few queries, that kernel takes 1.3 to 5 times as long, more with more threads.
    """
    if q.device.type != "cpu" or torch.is_grad_enabled() or q.shape[1] != k.shape[1]:
        return False
    if torch.compiler.is_compiling():  # a graph for one query exists in any case
        return q.shape[-2] == 1 and q.dtype in (torch.float32, torch.float64)
    if q.shape[-2] <= FEW_QUERIES:
        return q.dtype in (torch.float32, torch.float64)
    return k.shape[-2] <= FEW_KEYS and q.shape[-1] % 16 == 0 and _kernel_serves((q, k))


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Return the attention of q `(B, H, S, D)` to k and v `(B, H, T, D)`; no gradients.

    bias: added to the scores, `(…, H, S, T)`. mask: True where a query may look, four axes. A query
    that may not look at any key gets zeros.
    """
    added, lowest = bias, torch.finfo(q.dtype).min
    if mask is not None:  # a sum over few keys takes less time than a choice for each head
        plain = q.new_zeros(()) if bias is None else bias.to(q.dtype)
        added = torch.where(mask, plain, lowest)
    found = _by_kernel(q, k, v, scale, added)
    return _by_torch(q, k, v, scale, added, mask) if found is None else found


def _kernel_serves(xs: Sequence[Tensor]) -> bool:
    if INSTRUCTIONS is None or torch.compiler.is_compiling() or is_transformed():
        return False
    return are_plain(xs) and all(x.dtype == torch.float32 and not x.is_neg() for x in xs)


def _by_kernel(
    q: Tensor, k: Tensor, v: Tensor, scale: float, added: Tensor | None
) -> Tensor | None:
    """Fast path; returns None when torch must compute."""
    if not _kernel_serves((q, k, v) if added is None else (q, k, v, added)):
        return None
    if added is not None:
        added = added[(None,) * (4 - added.ndim)]
        if added.stride(-1) != 1:
            added = added.contiguous()
    batch, heads, queries, dim = q.shape
    # In memory, the heads of a query follow one another, as the output projection needs them.
    out = q.new_empty(batch, queries, heads, dim).transpose(1, 2)
    served = _attend(q, k, v, added, out, scale, torch.get_num_threads())
    return out if served else None


def _by_torch(
    q: Tensor, k: Tensor, v: Tensor, scale: float, added: Tensor | None, mask: Tensor | None
) -> Tensor:
    scores, keys = q @ k.transpose(-2, -1), k.shape[-2]
    scores = scores * scale if added is None else torch.add(added, scores, alpha=scale)
    if keys < FAST_KEYS:
        scores = pad(scores, (0, FAST_KEYS - keys), value=torch.finfo(q.dtype).min)
    p = scores.softmax(-1)[..., :keys]
    slow = q.shape[-2] == 1 and keys * v.shape[-1] < FAST_PRODUCT
    by_element = slow and not torch.compiler.is_compiling()
    out = (p.transpose(-2, -1) * v).sum(-2, keepdim=True) if by_element else p @ v
    return out if mask is None else torch.where(mask.any(-1, keepdim=True), out, 0.0)
