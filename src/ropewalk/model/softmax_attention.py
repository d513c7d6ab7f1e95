"""Attention by softmax over scores, of queries and keys that stand at their positions.

Axes: `B` batch, `H` query heads, `K` key/value heads, `S` queries, `T` keys,
`D` head_dim.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.bias import PairBias
from ropewalk.encodings.relative import masked_softmax
from ropewalk.model import flex
from ropewalk.model.cache import causal_mask
from ropewalk.rotary.kernels.operator import is_transformed

#: Scores that are formed at once. On CPU, what its caches hold: blocks then also take a half to a
#: third of the time, from 1,000 tokens on, and in training, although each is computed twice, less
#: than all at once. Elsewhere, each block costs launches.
BLOCK, BLOCK_ELSEWHERE = 2**20, 2**26
#: Queries of a block at least: DeBERTa multiplies all keys with positions anew for each block.
LEAST = 128


def attend(
    encoding: AttentionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    placement: Placement,
    mask: Tensor | None,
    causal: bool,
    need_probabilities: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attend from q `(B, H, S, D)` to k and v `(B, K, T, D)` as the encoding wants it.

    Gives the output `(B, H, S, D)` and, on request, the probabilities `(B, H, S, T)`. Looking
    back (`causal`), the last query's key is the last one. Where something must be formed for all
    pairs of queries and keys, queries come in blocks, which bounds its memory; in training, a block
    is computed once more for its gradients (but not under torch.compile and torch.func, which need
    all at once, as torch.export does). Compiled, looking back, in inference, a bias may come from
    the kernel (`flex`).
    """
    if encoding.attends and q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    queries, keys = q.shape[-2], k.shape[-2]
    rows = _rows_at_once(encoding, q, k, mask, causal)
    if rows >= queries:
        return _attend(encoding, q, k, v, placement, mask, causal, need_probabilities)
    served = causal and flex.serves(q, k)  # both ways, it is not faster than blocks, compiled
    if served and isinstance(encoding, PairBias) and not need_probabilities:
        of_heads = encoding.rows(q.device)
        if of_heads is not None and of_heads.shape[0] == q.shape[1]:  # of others, blocks complain
            return flex.attend(encoding, of_heads, q, k, v, placement, mask, causal), None
    attend_block = _computed_twice if torch.is_grad_enabled() else _block
    outputs, probabilities = [], []
    for start, end in pairwise(_block_bounds(queries, rows)):
        reach = keys - queries + end if causal else keys  # what lies ahead of the block is left out
        output, p = attend_block(
            encoding,
            q[:, :, start:end],
            k[:, :, :reach],
            v[:, :, :reach],
            placement.queries[..., start:end],
            placement.keys[..., :reach],
            None if mask is None else _part(mask, start, end, reach),
            causal,
            need_probabilities,
        )
        outputs.append(output)
        if p is not None:
            probabilities.append(pad(p, (0, keys - reach)))
    return torch.cat(outputs, -2), torch.cat(probabilities, -2) if probabilities else None


def _block(
    encoding: AttentionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Tensor,
    keys: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor | None]:
    # A placement of its own each time: it remembers what was formed.
    return _attend(encoding, q, k, v, Placement(queries, keys), *rest)


def _computed_twice(encoding: AttentionEncoding, *block: Any) -> tuple[Tensor, Tensor | None]:
    """Attend by one block; nothing of it is held for its gradients, which compute it once more."""
    attention = _Attending(encoding)
    held = {**dict(attention.named_parameters()), **dict(attention.named_buffers())}

    # The second time has the parameters of the first, whatever the encoding holds by then.
    def compute(*given: Any) -> Any:
        parameters = dict(zip(held, given[len(block) :], strict=True))
        return functional_call(attention, parameters, given[: len(block)], strict=True)

    found: tuple[Tensor, Tensor | None] = checkpoint(
        compute, *block, *held.values(), use_reentrant=False
    )
    return found


class _Attending(nn.Module):
    def __init__(self, encoding: AttentionEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, *block: Any) -> tuple[Tensor, Tensor | None]:
        return _block(self.encoding, *block)


def _attend(
    encoding: AttentionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    placement: Placement,
    mask: Tensor | None,
    causal: bool,
    need_probabilities: bool,
) -> tuple[Tensor, Tensor | None]:
    group = q.shape[1] // k.shape[1]
    formed = need_probabilities or (_few(q) and group == 1)
    bias = encoding.bias(placement)
    if bias is not None and bias.shape[-3] != q.shape[1]:
        raise ValueError(
            f"encoding must be built for the {q.shape[1]} heads of this attention, got a bias for "
            f"{bias.shape[-3]}"
        )
    plain = not (formed or encoding.attends) and bias is None and mask is None
    if causal and not (plain and q.shape[-2] == k.shape[-2]):
        mask, causal = _looking_back(q, k, mask), False
    if encoding.attends:
        return encoding.attend(q, k, v, placement, mask, need_probabilities)
    scale = q.shape[-1] ** -0.5 if encoding.scale is None else encoding.scale
    if formed:
        if group > 1:
            k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        p = attention_probabilities(q, k, scale, bias, mask)
        return p.to(v.dtype) @ v, p if need_probabilities else None
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return fused_attention(q, k, v, mask, causal, scale), None


def _rows_at_once(
    encoding: AttentionEncoding, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool
) -> int:
    """Give the number of queries that attend at once: all, where no pairs need be formed."""
    queries, keys = q.shape[-2], k.shape[-2]
    pairs = encoding.attends or encoding.biases
    if _exporting():  # the number of blocks would be that of one length
        return queries
    if torch.is_grad_enabled():
        # Neither a compiler's graph nor torch.func's transforms can compute a block once more.
        if not pairs or torch.compiler.is_compiling() or is_transformed():
            return queries
    elif not pairs and not (causal and (mask is not None or queries != keys)):
        return queries  # nor need it be narrowed to a mask (B, 1, S, T)
    block = BLOCK if q.device.type == "cpu" else BLOCK_ELSEWHERE
    return max(LEAST, block // max(1, q.shape[0] * q.shape[1] * keys))


def _block_bounds(queries: int, rows: int) -> list[int]:
    """Return where blocks of at most `rows` queries start, and where the last one ends."""
    if not torch.compiler.is_compiling():
        return [*range(0, queries, rows), queries]
    # A compiled graph has a fixed number of blocks. As that is a power of two, many lengths share a
    # graph, where each would otherwise be compiled by itself.
    count = 2
    while count * rows < queries:
        count *= 2
    return [block * queries // count for block in range(count + 1)]


def _exporting() -> bool:
    """Whether a program is being made for any length; before torch 2.7, any compiler may do so."""
    return bool(getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)())


def _part(mask: Tensor, start: int, end: int, reach: int) -> Tensor:
    """Cut a mask, broadcasting to `(B, H, S, T)`, to some queries and the first keys."""
    if mask.ndim > 1 and mask.shape[-2] > 1:
        mask = mask[..., start:end, :]
    return mask[..., :reach]


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Attend without forming probabilities; mask is boolean, or is added to the scores."""
    device, dtype = q.device.type, v.dtype
    # On CPU, torch's fused kernel takes 3 to 10 times as long in bfloat16 as in float32 to train
    # with, at sentence lengths, and autocast would cast float32 back.
    widen = device == "cpu" and dtype == torch.bfloat16 and torch.is_grad_enabled()
    if widen:
        q, k, v = q.float(), k.float(), v.float()
    if mask is not None and mask.dtype != torch.bool:
        mask = _in_range(mask, q.dtype)
    with torch.autocast(device, enabled=False) if widen else nullcontext():
        out = scaled_dot_product_attention(
            q,
            k.to(q.dtype),
            v.to(q.dtype),
            attn_mask=mask,
            is_causal=causal,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    return out.to(dtype)


def _in_range(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast a bias to the dtype of q, near 0 first where that is narrow: softmax does not see it.

    Where a query stands far from all keys, as in cross-attention, their biases would be one.
    """
    if bias.dtype == dtype or torch.finfo(dtype).bits > 16:
        return bias.to(dtype)
    top = bias.detach().amax(-1, keepdim=True)
    return (bias - top.clamp(min=torch.finfo(bias.dtype).min)).to(dtype)


def _few(q: Tensor) -> bool:
    """Whether queries are so few that torch's fused kernel on CPU loses to plain products.

    In generation it takes 1.3 to 5 times as long, the longer the more threads there are.
    """
    plain = q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64)
    most = 1 if torch.compiler.is_compiling() else 8  # a graph for one is there in any case
    return plain and q.shape[-2] <= most and not torch.is_grad_enabled()


def attention_probabilities(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Form softmax(scale * q k^T + bias) `(B, H, S, T)` in float32, or float64 if q is.

    Masked keys get exactly 0, also where a query may look nowhere.

    Example:
        >>> import torch
        >>> from ropewalk.model import attention_probabilities
        >>> q = k = torch.zeros(1, 1, 3, 8)
        >>> back = torch.ones(3, 3, dtype=torch.bool).tril()
        >>> attention_probabilities(q, k, scale=8**-0.5, bias=None, mask=back)[0, 0, 1]
        tensor([0.5000, 0.5000, 0.0000])
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)) * scale
        if bias is not None:
            scores = scores + bias
        return masked_softmax(scores, mask)


def _looking_back(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Narrow the mask to what stands at or before each query, the last of which is the last key."""
    seen = causal_mask(q.shape[-2], k.shape[-2], q.device)
    return seen if mask is None else mask & seen
