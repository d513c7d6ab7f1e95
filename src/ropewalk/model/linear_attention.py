"""Attention in time and memory linear in the length: sums over keys, with features φ.

With features φ (`features`) and the rotation R of an encoding, a query at m gets

    Σ_n (R_m φ(q_m))·(R_n φ(k_n)) v_n / Σ_n φ(q_m)·φ(k_n).

The sums over keys are computed once, and every query reads them. R is in the numerator alone:
rotated features have negative products, and a denominator of them could be zero. (If queries and
keys rotate before features are computed, R is inside φ.)
Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 4 to 12; Su et al. 2021, arXiv 2104.09864,
eq. 19.

Features have a scale, φ(k) = values * exp(log_scale), and so do sums: a sum is relative to the
largest scale seen so far, so it cannot overflow. The scale of a query cancels. Terms smaller than
the largest by more than float's range are lost: if queries and keys are so large (norms of some
hundreds) that no feature is large for both, their products fade to 0.

Axes: `B` batch, `H` query heads, `K` key/value heads, `S` queries, `T` keys,
`D` head_dim, `M` features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.model.cache import LinearAttentionCache, Sums
from ropewalk.model.features import Features, rotated_dim

#: Tokens in a chunk. Within a chunk, all pairs are multiplied; earlier chunks are read as sums.
CHUNK = 128


class Placed(NamedTuple):
    """Features of queries or keys at their positions."""

    plain: Tensor  # (B, heads, S, M)
    rotated: Tensor  # the same, rotated by the encoding; plain itself if nothing rotates
    log_scale: Tensor  # (B, heads, S)

    def part(self, start: int, end: int) -> Placed:
        """Return those of tokens start to end."""
        return self._each(lambda x: x[:, :, start:end])

    def apart(self) -> Placed:
        """Make each token a separate row with one token: `(B * S, heads, 1, M)`."""
        return self._each(_apart)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Placed:
        plain = change(self.plain)
        rotated = plain if self.rotated is self.plain else change(self.rotated)
        return Placed(plain, rotated, change(self.log_scale))


def check_encoding(encoding: AttentionEncoding, kind: str, head_dim: int) -> None:
    """Raise ValueError if an encoding's site cannot act in this kind of linear attention."""
    reason = None
    if encoding.attends:
        reason = "it has its own attention, which scores each pair of a query and a key"
    elif encoding.biases or encoding.scale is not None:
        reason = "it changes scores, and linear attention computes no scores"
    elif encoding.cached_keys != "rotated":
        reason = "it needs all keys at each step, and linear attention stores only their sums"
    elif encoding.rotates_values and rotated_dim(kind, head_dim) != head_dim:
        reason = "it rotates values, whose size differs from that of features; write rotate=before"
    if reason is not None:
        raise ValueError(
            f"attention must be softmax with {type(encoding).__name__}, got {kind!r}: {reason}"
        )


def place(
    features: nn.Module,
    encoding: AttentionEncoding,
    q: Tensor,
    k: Tensor | None,
    placement: Placement,
    *,
    rotate_features: bool,
) -> tuple[Placed, Placed | None]:
    """Compute features of q `(B, H, S, D)` and k `(B, K, T, D)`; rotate these or q and k."""
    if not rotate_features:
        q, k = encoding.rotate(q, k, placement)
    query: Features = features(q)
    key: Features | None = None if k is None else features(k)
    rotated, rotated_key = query.values, None if key is None else key.values
    if rotate_features:
        rotated, rotated_key = encoding.rotate(rotated, rotated_key, placement)
    placed = Placed(query.values, rotated, query.log_scale)
    if key is None or rotated_key is None:
        return placed, None
    return placed, Placed(key.values, rotated_key, key.log_scale)


def hide(key: Placed, mask: Tensor) -> Placed:
    """Remove keys from all sums where mask, broadcast to `(B, 1, 1, T)`, is False.

    If a mask also covers cached keys, which come first, it was applied to them already.
    """
    mask = mask[(None,) * (4 - mask.ndim)]
    if mask.shape[1] != 1 or mask.shape[2] != 1:
        raise ValueError(
            f"mask must be the same for all queries and heads in linear attention, because they "
            f"share the sums over keys: (B, 1, 1, T), got {tuple(mask.shape)}"
        )
    seen = mask[:, :, 0, -key.log_scale.shape[-1] :]
    return key._replace(log_scale=key.log_scale.masked_fill(~seen, -torch.inf))


def attend(
    query: Placed,
    key: Placed | None,
    v: Tensor | None,
    mask: Tensor | None,
    causal: bool,
    cache: LinearAttentionCache | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attend to keys and values v `(B, K, T, D)` and to the cache, or to the cache alone.

    Returns `(B, H, S, D)` and, on request and without a cache, the weights `(B, H, S, T)`.
    """
    if key is None or v is None:
        assert cache is not None
        assert cache.sums is not None
        return look(query, cache.sums), None
    if mask is not None:
        key = hide(key, mask)
    if need_weights:
        if cache is not None:
            raise ValueError(
                "need_probabilities must be False with a cache in linear attention, got True: a "
                "cache contains sums, and no single key; compute the full prefix without a cache"
            )
        formed = weights(query, key, causal)
        return formed @ v.repeat_interleave(formed.shape[1] // v.shape[1], dim=1), formed
    held, beams = None, 0
    if cache is not None:
        held = cache.sums
        if cache.branching:
            beams = v.shape[-2]
            query, key, v = query.apart(), key.apart(), _apart(v)
    if causal and not beams:
        output, sums = look_back(query, key, v, held)
    else:
        sums = absorb(key, v, held)
        output = look(query, sums)
    if cache is not None:
        cache.hold(sums, v.shape[-2])
    if beams:
        output = output.squeeze(2).unflatten(0, (-1, beams)).transpose(1, 2)
    return output, None


def absorb(key: Placed, v: Tensor, held: Sums | None = None) -> Sums:
    """Add keys and values v `(B, K, T, D)` to the sums of those before them."""
    scale = _largest(key.log_scale).squeeze(-1)
    if held is not None:
        scale = torch.maximum(scale, held.scale)
    shares = (key.log_scale - scale[..., None]).exp()[..., None]  # (B, K, T, 1)
    values = (key.rotated * shares).mT @ v
    features = (key.plain * shares).sum(-2)
    if held is not None:
        kept = (held.scale - scale).exp()[..., None]
        values = values + held.values * kept[..., None]
        features = features + held.features * kept
    return Sums(values, features, scale)


def look(query: Placed, sums: Sums) -> Tensor:
    """Let all queries look at everything in the sums: `(B, H, S, D)`."""
    kv_heads = sums.features.shape[1]
    numerator = _rows(query.rotated, kv_heads) @ sums.values
    denominator = _rows(query.plain, kv_heads) @ sums.features[..., None]
    return _ratio(numerator, denominator).reshape(*query.plain.shape[:-1], numerator.shape[-1])


def look_back(
    query: Placed, key: Placed, v: Tensor, held: Sums | None = None, chunk: int = CHUNK
) -> tuple[Tensor, Sums]:
    """Let each query look at its own key, at those before it, and at what the sums contain.

    Returns `(B, H, S, D)` and the sums of all keys. Memory is O(S): all pairs are computed within a
    chunk only, for the gradient too.
    """
    outputs = []
    for start in range(0, max(1, v.shape[-2]), chunk):
        end = start + chunk
        keys, values = key.part(start, end), v[..., start:end, :]
        outputs.append(_look_back_in_chunk(query.part(start, end), keys, values, held))
        held = absorb(keys, values, held)
    assert held is not None
    return torch.cat(outputs, -2), held


def weights(query: Placed, key: Placed, causal: bool) -> Tensor:
    """Return the weight of each value for each query `(B, H, S, T)`; the output does not need it.

    Rotated features can be negative, and the sum of the weights then differs from 1.
    """
    if causal:
        shares, _ = _shares(key.log_scale, None)
    else:
        shares = (key.log_scale - _largest(key.log_scale)).exp()[..., None, :]
    numerator = _products(query.rotated, key.rotated, shares)
    plain = query.rotated is query.plain
    denominator = numerator if plain else _products(query.plain, key.plain, shares)
    shape = *query.plain.shape[:-1], numerator.shape[-1]
    return _ratio(numerator, denominator.sum(-1, keepdim=True)).reshape(shape)


def _apart(x: Tensor) -> Tensor:
    """Reshape `(B, heads, S, …)` to `(B * S, heads, 1, …)`."""
    return x.transpose(1, 2).flatten(0, 1).unsqueeze(2)


def _look_back_in_chunk(query: Placed, key: Placed, v: Tensor, held: Sums | None) -> Tensor:
    shares, kept = _shares(key.log_scale, held)
    products = _products(query.rotated, key.rotated, shares)
    numerator = products @ v
    if query.rotated is not query.plain:
        products = _products(query.plain, key.plain, shares)
    denominator = products.sum(-1, keepdim=True)
    if held is not None and kept is not None:
        kv_heads = v.shape[1]
        kept = kept.repeat(1, 1, query.plain.shape[1] // kv_heads)[..., None]
        numerator = numerator + kept * (_rows(query.rotated, kv_heads) @ held.values)
        features = held.features[..., None]
        denominator = denominator + kept * (_rows(query.plain, kv_heads) @ features)
    return _ratio(numerator, denominator).reshape(*query.plain.shape[:-1], numerator.shape[-1])


def _shares(log_scale: Tensor, held: Sums | None) -> tuple[Tensor, Tensor | None]:
    """Return exp(scale of key t - largest scale up to s) for t <= s `(B, K, S, S)`, else 0.

    Also return the same for what the sums contain, `(B, K, S)`. The scale of a query never includes
    later keys.
    """
    largest = _finite(log_scale.cummax(-1).values)
    kept = None
    if held is not None:
        largest = torch.maximum(largest, held.scale[..., None])
        kept = (held.scale[..., None] - largest).exp()
    return (log_scale[..., None, :] - largest[..., None]).exp().tril(), kept


def _products(q: Tensor, k: Tensor, shares: Tensor) -> Tensor:
    """Return q·k times its share for all pairs: `(B, K, G S, T)`, G query heads per key head."""
    kv_heads, tokens = k.shape[1], q.shape[-2]
    products: Tensor = _rows(q, kv_heads) @ k.mT
    products = products.unflatten(2, (q.shape[1] // kv_heads, tokens)) * shares[:, :, None]
    return products.flatten(2, 3)


def _rows(q: Tensor, kv_heads: int) -> Tensor:
    """Stack query heads that share a key head: `(B, K, G S, M)`."""
    batch, heads, tokens, width = q.shape
    return q.reshape(batch, kv_heads, heads // kv_heads * tokens, width)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide; return 0 if there is nothing to look at."""
    # So small a denominator is only rounding error, and its inverse would overflow the gradient.
    least: float = torch.finfo(denominator.dtype).tiny ** 0.5
    return numerator / denominator.clamp(min=least)


def _largest(log_scale: Tensor) -> Tensor:
    """Return the largest scale of each head `(…, 1)`; without keys, the least finite number."""
    if not log_scale.shape[-1]:
        log_scale = log_scale.new_full((*log_scale.shape[:-1], 1), -torch.inf)
    return _finite(log_scale.amax(-1, keepdim=True))


def _finite(log_scale: Tensor) -> Tensor:
    """Clamp scales, so that their differences are defined if all keys are hidden."""
    least: float = torch.finfo(log_scale.dtype).min
    return log_scale.clamp(min=least)
