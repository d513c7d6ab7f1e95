"""Softmax attention of queries and keys at their positions.

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
from torch.nn import functional
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.biases import PairBias
from ropewalk.encodings.relative import masked_softmax
from ropewalk.model import flex, short_attention
from ropewalk.model.cache import causal_mask
from ropewalk.rotary.kernels.operator import is_transformed

#: Scores per block. On CPU they fit into its caches: from 1,000 tokens on, blocks then take a half
#: to a third of the time and, in training, less time than one piece although each is computed
#: twice. On other devices, each block costs kernel launches.
BLOCK, BLOCK_ELSEWHERE = 2**20, 2**26
#: Fewest queries of a block: DeBERTa multiplies all keys with positions again for each block.
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
    """Attend from q `(B, H, S, D)` to k and v `(B, K, T, D)` with what the encoding adds.

    Returns the output `(B, H, S, D)` and, on request, the probabilities `(B, H, S, T)`. With
    `causal`, the last query is at the last key. If something must be computed for all pairs of
    queries and keys, queries attend in blocks, which limits memory; in training, a block is
    computed a second time for its gradients (not under torch.compile, torch.func and torch.export,
    which need all queries in one piece). In compiled causal inference, the bias may come from the
    kernel (`flex`).
    """
    if encoding.attends and q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    queries, keys = q.shape[-2], k.shape[-2]
    rows = _rows_at_once(encoding, q, k, mask, causal)
    if rows >= queries:
        return _attend(encoding, q, k, v, placement, mask, causal, need_probabilities)
    served = causal and flex.serves(q, k)  # both ways, it is not faster than compiled blocks
    if served and isinstance(encoding, PairBias) and not need_probabilities:
        of_heads = encoding.rows(q.device)
        if of_heads is not None and of_heads.shape[0] == q.shape[1]:  # else blocks raise the error
            return flex.attend(encoding, of_heads, q, k, v, placement, mask, causal), None
    attend_block = _computed_twice if torch.is_grad_enabled() else _block
    outputs, probabilities = [], []
    for start, end in pairwise(_block_bounds(queries, rows)):
        reach = keys - queries + end if causal else keys  # keys ahead of the block are left out
        seen = mask
        if mask is not None and mask.ndim > 1 and mask.shape[-2] > 1:  # not one for all queries
            seen = mask[..., start:end, :]
        output, p = attend_block(
            encoding,
            q[:, :, start:end],
            k[:, :, :reach],
            v[:, :, :reach],
            placement.queries[..., start:end],
            placement.keys[..., :reach],
            None if seen is None else seen[..., :reach],
            causal,
            need_probabilities,
        )
        outputs.append(output)
        if p is not None:
            probabilities.append(pad(p, (0, keys - reach)))
    return torch.cat(outputs, -2), torch.cat(probabilities, -2) if probabilities else None


def _block(encoding: AttentionEncoding, *block: Any) -> tuple[Tensor, Tensor | None]:
    q, k, v, queries, keys, *rest = block
    # A new placement each time: it memoizes what was computed.
    return _attend(encoding, q, k, v, Placement(queries, keys), *rest)


def _computed_twice(encoding: AttentionEncoding, *block: Any) -> tuple[Tensor, Tensor | None]:
    """Attend by one block; store nothing for its gradients, which compute it a second time."""
    attention = _Attending(encoding)
    held = {**dict(attention.named_parameters()), **dict(attention.named_buffers())}

    # The second time uses the parameters of the first, even if the encoding has changed since.
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
    formed = need_probabilities or short_attention.suits(q, k)
    bias = encoding.bias(placement)
    if bias is not None and bias.shape[-3] != q.shape[1]:
        raise ValueError(
            f"encoding must be built for the {q.shape[1]} heads of this attention, got a bias for "
            f"{bias.shape[-3]}"
        )
    plain = not (formed or encoding.attends) and bias is None and mask is None
    if causal and not (plain and q.shape[-2] == k.shape[-2]):
        # The last query is at the last key.
        seen = causal_mask(q.shape[-2], k.shape[-2], q.device)
        mask, causal = seen if mask is None else mask & seen, False
    if encoding.attends:
        return encoding.attend(q, k, v, placement, mask, need_probabilities)
    scale = q.shape[-1] ** -0.5 if encoding.scale is None else encoding.scale
    if formed:
        if group > 1:
            k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        if not need_probabilities:
            return short_attention.attend(q, k, v, scale, bias, mask), None
        p = attention_probabilities(q, k, scale, bias, mask)
        return p.to(v.dtype) @ v, p
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return fused_attention(q, k, v, mask, causal, scale), None


def _rows_at_once(
    encoding: AttentionEncoding, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool
) -> int:
    """Return how many queries attend in one piece: all, if no pairs must be computed."""
    queries, keys = q.shape[-2], k.shape[-2]
    pairs = encoding.attends or encoding.biases
    # An exported program serves any length, so its number of blocks must not be fixed for one.
    if torch.compiler.is_exporting():
        return queries
    if torch.is_grad_enabled():
        # A compiler's graph and torch.func's transforms cannot compute a block a second time.
        if not pairs or torch.compiler.is_compiling() or is_transformed():
            return queries
    elif not pairs and not (causal and (mask is not None or queries != keys)):
        return queries  # nor is a mask (B, 1, S, T) needed
    block = BLOCK if q.device.type == "cpu" else BLOCK_ELSEWHERE
    return max(LEAST, block // max(1, q.shape[0] * q.shape[1] * keys))


def _block_bounds(queries: int, rows: int) -> list[int]:
    """Return where blocks of at most `rows` queries start, and where the last one ends."""
    if not torch.compiler.is_compiling():
        return [*range(0, queries, rows), queries]
    # A compiled graph has a fixed number of blocks. With a power of two, many lengths share a
    # graph; otherwise each length would be compiled separately.
    count = 2
    while count * rows < queries:
        count *= 2
    return [block * queries // count for block in range(count + 1)]


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Attend without computing probabilities; mask is boolean, or is added to the scores."""
    device, dtype = q.device.type, v.dtype
    # On CPU, training with torch's fused kernel takes 3 to 10 times as long in bfloat16 as in
    # float32, at sentence lengths. Autocast would cast float32 back.
    widen = device == "cpu" and dtype == torch.bfloat16 and torch.is_grad_enabled()
    if widen:
        q, k, v = q.float(), k.float(), v.float()
    if mask is not None and mask.dtype != torch.bool:
        mask = _in_range(mask, q.dtype)
    with torch.autocast(device, enabled=False) if widen else nullcontext():
        out = functional.scaled_dot_product_attention(  # torch's context_parallel replaces it
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
    """Cast a bias to the dtype of q; if that is narrow, move its largest value to 0 first.

    Softmax does not change. Without this, all biases of a query that is far from all keys, as in
    cross-attention, would round to one number.
    """
    if bias.dtype == dtype or torch.finfo(dtype).bits > 16:
        return bias.to(dtype)
    top = bias.detach().amax(-1, keepdim=True)
    return (bias - top.clamp(min=torch.finfo(bias.dtype).min)).to(dtype)


def attention_probabilities(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Return softmax(scale * q k^T + bias) `(B, H, S, T)` in float32, or float64 if q is.

    Masked keys get exactly 0, also for a query that may not look at any key.

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
