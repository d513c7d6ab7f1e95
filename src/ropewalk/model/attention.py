"""Multi-head attention that receives its position encoding from outside.

Axes: ``B`` batch, ``H`` query heads, ``K`` key/value heads, ``S`` queries, ``T`` keys,
``D`` head_dim.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.model.cache import KeyValueCache, causal_mask


class AttentionOutput(NamedTuple):
    """Output of attention, and its probabilities where they were asked for."""

    output: Tensor  # (B, S, width)
    probabilities: Tensor | None  # (B, H, S, T)


class Attention(nn.Module):
    """Multi-head attention whose key/value heads may be fewer than its query heads.

    ``encoding`` is a site of an encoding (``build("rotary", shape).site(layer)``); without one,
    attention knows nothing of positions. Self-attention: ``attention(x, causal=True)``;
    cross-attention: ``attention(x, memory, mask=mask)``. It can be used alone in a model of your
    own. Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        encoding: AttentionEncoding | None = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide width, got heads={heads} and width={width}")
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads must divide heads, got kv_heads={kv_heads}, heads={heads}")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.encoding = AttentionEncoding() if encoding is None else encoding
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * kv_heads * self.head_dim)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        placement: Placement | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        need_probabilities: bool = False,
    ) -> AttentionOutput:
        """Attend from x ``(B, S, width)`` to itself, or to memory ``(B, T, width)`` where given.

        placement: positions of queries and keys (default: 0, 1, … and, behind a cache, on from
        there); mask: boolean, True where a query may look, broadcasting to ``(B, H, S, T)``;
        causal: look back only; cache: holds the keys and values of earlier calls. With memory, a
        filled cache stands for it, and memory is not projected again. A query that may look nowhere
        gets the output's bias alone.
        """
        self._check(memory, placement, mask, causal, cache)
        past = cache.length if cache is not None else 0
        known = memory is not None and past > 0  # the cache holds memory's keys already
        if placement is None:
            placement = self._default_placement(x, memory, past)
        q = self._split(self.query(x), self.heads)
        if known:
            assert cache is not None
            k, v = cache.held()
            q, turned = self.encoding.rotate(q, None if self._rotated else k, placement)
            k = k if turned is None else turned
        else:
            k, v = self.key_value(x if memory is None else memory).chunk(2, dim=-1)
            k, v = self._split(k, self.kv_heads), self._split(v, self.kv_heads)
            q, k, v = self._place(q, k, v, placement, cache)
        causal = causal and x.shape[1] > 1  # the last token may look at all there are
        if causal and (past or mask is not None):
            mask, causal = _looking_back(q, k, mask), False
        output, probabilities = self._attend(q, k, v, placement, mask, causal, need_probabilities)
        output = self.output(output.transpose(1, 2).flatten(2))
        return AttentionOutput(output, probabilities)

    def _check(
        self,
        memory: Tensor | None,
        placement: Placement | None,
        mask: Tensor | None,
        causal: bool,
        cache: KeyValueCache | None,
    ) -> None:
        encoding = type(self.encoding)
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(
                f"mask must be boolean, True where a query may look, got {mask.dtype}; what is "
                f"added to the scores comes from an encoding's bias"
            )
        if causal and memory is not None:
            raise ValueError(
                "causal must be False where memory is given: it has no past and future"
            )
        if cache is not None and self.encoding.cached_keys == "none":
            raise ValueError(
                f"cache must be None: the method of {encoding.__name__} allows no key cache; "
                f"decode by computing the whole prefix anew"
            )
        unplaced = cache is not None and memory is not None and placement is None
        if unplaced and encoding is not AttentionEncoding:
            raise ValueError(
                f"placement must be given for {encoding.__name__} in cross-attention with a cache, "
                f"got None: memory's keys do not tell how many queries came before"
            )

    @property
    def _rotated(self) -> bool:
        return self.encoding.cached_keys == "rotated"

    def _split(self, x: Tensor, heads: int) -> Tensor:
        split: Tensor = x.unflatten(-1, (heads, self.head_dim))
        return split.transpose(1, 2)  # (B, heads, S, D)

    def _default_placement(self, x: Tensor, memory: Tensor | None, past: int) -> Placement:
        device, new = x.device, x.shape[1]
        if memory is not None:
            return Placement(
                torch.arange(new, device=device), torch.arange(memory.shape[1], device=device)
            )
        return self_placement(torch.arange(past + new, device=device), new, self.encoding)

    def _place(
        self, q: Tensor, k: Tensor, v: Tensor, placement: Placement, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate and cache, in the order that the encoding's ``cached_keys`` asks for."""
        if cache is not None and not self._rotated:
            k, v = cache.append(k, v)
        q, turned = self.encoding.rotate(q, k, placement)
        assert turned is not None
        k = turned
        if cache is not None and self._rotated:
            k, v = cache.append(k, v)
        return q, k, v

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        placement: Placement,
        mask: Tensor | None,
        causal: bool,
        need_probabilities: bool,
    ) -> tuple[Tensor, Tensor | None]:
        grouped = self.kv_heads != self.heads
        formed = need_probabilities or (_few(q) and not grouped)
        bias = self.encoding.bias(placement)
        if causal and (formed or self.encoding.attends or bias is not None):
            mask, causal = _looking_back(q, k, mask), False
        if grouped and (formed or self.encoding.attends):
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k, v))
        if self.encoding.attends:
            return self.encoding.attend(q, k, v, placement, mask, need_probabilities)
        scale = self.head_dim**-0.5 if self.encoding.scale is None else self.encoding.scale
        if formed:
            p = attention_probabilities(q, k, scale, bias, mask)
            return p.to(v.dtype) @ v, p if need_probabilities else None
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        return fused_attention(q, k, v, mask, causal, scale), None


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
        mask = mask.to(q.dtype)
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


def _few(q: Tensor) -> bool:
    """Whether queries are so few that torch's fused kernel on CPU loses to plain products.

    In generation it takes 1.3 to 5 times as long, the longer the more threads there are.
    """
    plain = q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64)
    return plain and q.shape[-2] <= 8 and not torch.is_grad_enabled()


def attention_probabilities(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Form softmax(scale * q k^T + bias) ``(B, H, S, T)`` in float32, or float64 if q is.

    Masked keys get exactly 0, also where a query may look nowhere.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)) * scale
        if bias is not None:
            scores = scores + bias
        if mask is None:
            return scores.softmax(dim=-1)
        lowest = torch.finfo(scores.dtype).min  # -inf would make a row of masked keys NaN
        return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def _looking_back(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Narrow the mask to what stands at or before each query, the last of which is the last key."""
    seen = causal_mask(q.shape[-2], k.shape[-2], q.device)
    return seen if mask is None else mask & seen


def self_placement(everything: Tensor, new: int, encoding: AttentionEncoding) -> Placement:
    """Place the tokens at these positions ``(T,)``, of which the last ``new`` are the queries."""
    queries = everything[everything.shape[0] - new :]
    fresh = queries if encoding.cached_keys == "rotated" else everything
    return Placement(queries, everything, fresh)
