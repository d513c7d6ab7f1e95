"""Multi-head attention that receives its position encoding as an argument.

Axes: `B` batch, `H` query heads, `K` key/value heads, `S` queries, `T` keys,
`D` head_dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.model import linear_attention, softmax_attention
from ropewalk.model.cache import AttentionCache, KeyValueCache, LinearAttentionCache
from ropewalk.model.features import parse_attention
from ropewalk.model.linear import TrainedLinear


class AttentionOutput(NamedTuple):
    """Output of attention, and its probabilities if requested.

    Example:
        >>> import torch
        >>> from ropewalk.model import Attention
        >>> attention = Attention(16, heads=2)
        >>> output, probabilities = attention(torch.randn(1, 5, 16), need_probabilities=True)
        >>> output.shape, probabilities.shape
        (torch.Size([1, 5, 16]), torch.Size([1, 2, 5, 5]))
    """

    output: Tensor  # (B, S, width)
    probabilities: Tensor | None  # (B, H, S, T)


class Attention(nn.Module):
    """Multi-head attention; key/value heads may be fewer than query heads (`kv_heads`).

    `encoding` is an `AttentionEncoding`, the part of a position encoding for one layer, as returned
    by `build("rotary", shape).for_layer(layer)`. Without it, scores do not depend on
    positions. `kind` is `softmax`, or linear attention: `performer`,
    `performer(features=64, rotate=before)` or `elu`. Linear attention
    maps q and k to features. It rotates the features or, with `rotate=before`, q and k. The number
    of features can differ from head_dim. So for linear attention, build the encoding for a shape
    with `head_dim=rotated_dim(kind, head_dim)`. An unsuitable encoding raises an error.

    Self-attention: `attention(x, causal=True)`; cross-attention:
    `attention(x, memory, mask=mask)`. You can use this module alone in your own model.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import StackShape, build
        >>> from ropewalk.model import Attention, KeyValueCache
        >>> shape = StackShape(1, heads=4, kv_heads=2, head_dim=8, width=32, causal=True)
        >>> encoding = build("rotary", shape).for_layer(0)
        >>> attention = Attention(32, heads=4, kv_heads=2, encoding=encoding)
        >>> cache = KeyValueCache()
        >>> prompt = attention(torch.randn(1, 10, 32), causal=True, cache=cache).output
        >>> token = attention(torch.randn(1, 1, 32), causal=True, cache=cache).output
        >>> token.shape, cache.length
        (torch.Size([1, 1, 32]), 11)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        encoding: AttentionEncoding | None = None,
        kind: str = "softmax",
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide width, got heads={heads} and width={width}")
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads must divide heads, got kv_heads={kv_heads}, heads={heads}")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        if not (encoding is None or isinstance(encoding, AttentionEncoding)):
            raise TypeError(
                f"encoding must be an AttentionEncoding, which acts in one layer, got "
                f"{type(encoding).__name__}; write encoding.for_layer(layer)"
            )
        self.encoding = AttentionEncoding() if encoding is None else encoding
        self.linear = parse_attention(kind)
        self.features = None
        if self.linear is not None:
            linear_attention.check_encoding(self.encoding, kind, self.head_dim)
            self.features = self.linear.feature_map(self.head_dim)
        self.query = TrainedLinear(width, width)
        self.key_value = TrainedLinear(width, 2 * kv_heads * self.head_dim)
        self.output = TrainedLinear(width, width)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        placement: Placement | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: AttentionCache | None = None,
        need_probabilities: bool = False,
    ) -> AttentionOutput:
        """Attend from x `(B, S, width)` to itself, or to memory `(B, T, width)` if given.

        placement: positions of queries and keys (default: 0, 1, …, continued after a cache).
        mask: boolean, True where a query may look, broadcast to `(B, H, S, T)`; in linear attention
            it must be the same for all queries.
        causal: look back only.
        cache: the state of earlier calls: in linear attention a LinearAttentionCache, otherwise a
            KeyValueCache. In cross-attention, give memory in every call; it is projected only in
            the first one.
        need_probabilities: also return probabilities. Linear attention has none, and returns its
            weights instead, if cache is None. If features are rotated, some weights are
            negative.

        A query with every key masked returns only the bias of the output projection.
        """
        self._check(memory, placement, mask, causal, cache)
        if mask is not None:
            mask = mask[(None,) * (4 - mask.ndim)]
        past = cache.length if cache is not None else 0
        if placement is None:
            placement = self._default_placement(x, memory, past)
        q, kv = self._split(self.query(x), self.heads), None
        if memory is None or past == 0:  # else the cache already contains memory's keys
            k, v = self.key_value(x if memory is None else memory).chunk(2, dim=-1)
            kv = self._split(k, self.kv_heads), self._split(v, self.kv_heads)
        if x.shape[1] == 1:  # the last token may look at all tokens
            causal = False
        if self.linear is None:
            assert cache is None or isinstance(cache, KeyValueCache)
            q, k, v = self._place(q, kv, placement, cache)
            output, probabilities = softmax_attention.attend(
                self.encoding, q, k, v, placement, mask, causal, need_probabilities
            )
        else:
            assert cache is None or isinstance(cache, LinearAttentionCache)
            output, probabilities = self._look_linearly(
                q, kv, placement, mask, causal, cache, need_probabilities
            )
        output = self.encoding.restore(output, placement)
        output = self.output(output.transpose(1, 2).flatten(2))
        return AttentionOutput(output, probabilities)

    if TYPE_CHECKING:  # torch says Any
        __call__: Callable[..., AttentionOutput]

    def _check(
        self,
        memory: Tensor | None,
        placement: Placement | None,
        mask: Tensor | None,
        causal: bool,
        cache: AttentionCache | None,
    ) -> None:
        encoding = type(self.encoding)
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(
                f"mask must be boolean, True where a query may look, got {mask.dtype}; to add "
                f"numbers to the scores, use an encoding's bias"
            )
        if causal and memory is not None:
            raise ValueError(
                "causal must be False if memory is given: memory has no past and future"
            )
        wanted = KeyValueCache if self.linear is None else LinearAttentionCache
        if cache is not None and not isinstance(cache, wanted):
            raise TypeError(
                f"cache must be a {wanted.__name__} in this kind of attention, got a "
                f"{type(cache).__name__}; TransformerShape.new_cache makes the right one"
            )
        if cache is not None and self.encoding.cached_keys == "none":
            raise ValueError(
                f"cache must be None: {encoding.__name__} does not work with cached keys; "
                f"decode by computing the full prefix again"
            )
        unplaced = cache is not None and memory is not None and placement is None
        if unplaced and encoding is not AttentionEncoding:
            raise ValueError(
                f"placement must be given for {encoding.__name__} in cross-attention with a cache, "
                f"got None: the cache's length is that of memory, which does not tell where the "
                f"queries are"
            )

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
        self,
        q: Tensor,
        kv: tuple[Tensor, Tensor] | None,
        placement: Placement,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate and cache, in the order that the encoding's `cached_keys` requires."""
        caches_rotated = self.encoding.cached_keys == "rotated"
        if kv is not None:
            k, v = kv
            if cache is not None and not caches_rotated:
                k, v = cache.append(k, v)
        else:
            assert cache is not None
            k, v = cache.held()
        rotate_keys = kv is not None or not caches_rotated
        q, rotated = self.encoding.rotate(q, k if rotate_keys else None, placement)
        if rotate_keys:
            assert rotated is not None
            k, v = rotated, self.encoding.rotate_values(v, placement)
        if kv is not None and cache is not None and caches_rotated:
            k, v = cache.append(k, v)
        return q, k, v

    def _look_linearly(
        self,
        q: Tensor,
        kv: tuple[Tensor, Tensor] | None,
        placement: Placement,
        mask: Tensor | None,
        causal: bool,
        cache: LinearAttentionCache | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        assert self.linear is not None
        assert self.features is not None
        dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            k, v = (None, None) if kv is None else (x.to(wide) for x in kv)
            after = self.linear.rotate == "after"
            query, key = linear_attention.place(
                self.features, self.encoding, q.to(wide), k, placement, rotate_features=after
            )
            values = None if v is None else self.encoding.rotate_values(v, placement)
            output, weights = linear_attention.attend(
                query, key, values, mask, causal, cache, need_weights
            )
        return output.to(dtype), weights


def self_placement(everything: Tensor, new: int, encoding: AttentionEncoding) -> Placement:
    """Return the placement of tokens at positions `everything`, `(T,)`.

    new: the number of queries; these are the last tokens.
    """
    queries = everything[everything.shape[0] - new :]
    new_keys = queries if encoding.cached_keys == "rotated" else everything
    return Placement(queries, everything, new_keys)
