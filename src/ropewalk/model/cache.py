"""Caches of earlier tokens, so that generation projects each token only once."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention layer: k and v `(B, K, T, D)`, T grows with the tokens.

    Memory grows by doubling, so that n single tokens copy O(n) rows and not O(n^2).

    Example:
        >>> import torch
        >>> from ropewalk.model import KeyValueCache
        >>> cache = KeyValueCache()
        >>> k, v = torch.randn(2, 1, 4, 10, 8)
        >>> keys, values = cache.append(k, v)  # the prompt
        >>> keys, values = cache.append(k[:, :, :1], v[:, :, :1])  # a token
        >>> keys.shape, cache.length
        (torch.Size([1, 4, 11, 8]), 11)
    """

    def __init__(self) -> None:
        self._room: list[Tensor] = []  # keys and values, with rows for more; empty at first
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens at the end; return all of them."""
        new = keys, values
        for name, old, more in zip(("keys", "values"), self._room, new, strict=False):
            wanted = (*old.shape[:-2], more.shape[-2], old.shape[-1])
            if more.shape != wanted or more.dtype != old.dtype:
                raise ValueError(
                    f"{name} must fit those in the cache, {wanted} of {old.dtype}, got "
                    f"{tuple(more.shape)} of {more.dtype}; use a new cache for another batch"
                )
        start, end = self.length, self.length + keys.shape[-2]
        if not self._room or end > self._room[0].shape[-2]:
            # The first room is not doubled, because the keys of an encoder's output never grow.
            rows = max(16, 1 << (end - 1).bit_length() if self._room else end)
            grown = [x.new_empty(*x.shape[:-2], rows, x.shape[-1]) for x in new]
            for old, room in zip(self._room, grown, strict=False):
                room[..., :start, :] = old[..., :start, :]
            self._room = grown
        for room, more in zip(self._room, new, strict=True):
            room[..., start:end, :] = more
        self.length = end
        return self.held()

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all tokens so far."""
        if not self._room:
            raise RuntimeError("the cache is empty: append first")
        keys, values = self._room
        return keys[..., : self.length, :], values[..., : self.length, :]

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        self._room = [x.index_select(0, rows) for x in self._room]


class Sums(NamedTuple):
    """Sums over all keys seen, as linear attention needs them, divided by exp(scale)."""

    values: Tensor  # the sum of φ(k) v^T: (B, K, M, D), with M features
    features: Tensor  # the sum of φ(k): (B, K, M)
    scale: Tensor  # (B, K)


class LinearAttentionCache:
    """The sums of one layer of linear attention; their size does not depend on the tokens.

    In beam search, the cache is *branching* (see `DecoderCache`): each beam has its own sums, so
    the first axis of the sums has the size B * beams.

    Example:
        >>> import torch
        >>> from ropewalk.model import Attention, LinearAttentionCache
        >>> attention, cache = Attention(16, heads=2, kind="elu"), LinearAttentionCache()
        >>> for _ in range(100):
        ...     out = attention(torch.randn(1, 1, 16), causal=True, cache=cache).output
        >>> cache.length, cache.sums.values.shape
        (100, torch.Size([1, 2, 8, 8]))
    """

    def __init__(self, *, branching: bool = False) -> None:
        self.sums: Sums | None = None
        self.length = 0
        self.branching = branching

    def hold(self, sums: Sums, tokens: int) -> None:
        """Replace the sums by these, which contain `tokens` more tokens."""
        self.sums = sums
        self.length += tokens

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        if self.sums is not None:
            self.sums = Sums(*(x.index_select(0, rows) for x in self.sums))


#: What one attention stores: keys and values, or in linear attention their sums.
AttentionCache: TypeAlias = KeyValueCache | LinearAttentionCache


class DecoderCache:
    """State of a decoder between steps.

    Each layer has a cache of the target's tokens and one of the memory, the encoder's output.

    A *branching* cache serves beam search: a row is a sentence, and each step adds one token for
    each beam of the sentence. All these tokens have the same position. Keys are never moved or
    repeated: a mask hides the tokens of other beams (`add_tokens`, `follow`), and all beams share
    the keys of the memory. Linear attention (`linear`) stores sums instead of keys. Each beam has
    its own sums, which `follow` copies to the beams that continue it.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import Encoding
        >>> from ropewalk.model import DecoderCache, LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 16, 2, 32, encoder_layers=0, decoder_layers=2)
        >>> model, cache = LanguageModel(shape, Encoding(), causal=True), DecoderCache(layers=2)
        >>> hidden = model(torch.tensor([[5, 17, 42]]), cache=cache)
        >>> model(torch.tensor([[7]]), cache=cache).shape, cache.length
        (torch.Size([1, 1, 16]), 4)
    """

    def __init__(self, layers: int, *, branching: bool = False, linear: bool = False) -> None:
        def new_caches(branching: bool) -> list[KeyValueCache] | list[LinearAttentionCache]:
            if linear:
                return [LinearAttentionCache(branching=branching) for _ in range(layers)]
            return [KeyValueCache() for _ in range(layers)]

        self.own, self.memory = new_caches(branching), new_caches(False)
        self.branching, self.linear = branching, linear
        self._beams: list[int] = []  # the number of beams in each step
        self._awaited = 0  # the number of beams in the next step; 0 before the first step
        self._visible: Tensor | None = None  # (B, beams, T)

    @property
    def length(self) -> int:
        """Number of target positions seen."""
        if self.branching:
            return len(self._beams)
        return self.own[0].length if self.own else 0

    def add_tokens(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Register new tokens `(B, S)` that the layers are about to append.

        Returns the positions `(T,)` of all tokens, the new ones last, and a mask `(B, S, T)`: True
        where a new token may look. The mask is None without branches, and in linear attention.
        """
        new, device = target.shape[1], target.device
        if not self.branching:
            return torch.arange(self.length + new, device=device), None
        if self._awaited not in (0, new):
            raise ValueError(
                f"target must contain one token for each of {self._awaited} beams, "
                f"got shape {tuple(target.shape)}"
            )
        self._awaited = new
        self._beams.append(new)
        steps, beams = torch.arange(self.length), torch.tensor(self._beams)
        positions = steps.repeat_interleave(beams).to(device)
        if self.linear:
            return positions, None
        # Each new token sees itself and the earlier tokens of its beam.
        seen = torch.eye(new, dtype=torch.bool, device=device).expand(len(target), -1, -1)
        if self._visible is not None:
            seen = torch.cat((self._visible, seen), -1)
        self._visible = seen
        return positions, seen

    def follow(self, parents: Tensor) -> None:
        """Let beam j of the next step continue the present beam `parents[:, j]`.

        parents: `(B, beams)`.
        """
        if not self._awaited:
            raise RuntimeError("follow needs a branching cache, after its first step")
        if self.linear and bool(((parents < 0) | (parents >= self._awaited)).any()):
            raise IndexError(
                f"parents must be beams of the last step, 0 to {self._awaited - 1}, got "
                f"{parents.tolist()}"
            )
        if self._visible is None:
            self._keep_sums(torch.arange(len(parents), device=parents.device), parents)
        else:
            index = parents[..., None].expand(-1, -1, self._visible.shape[-1])
            self._visible = self._visible.gather(1, index)
        self._awaited = parents.shape[1]

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        for cache in self.memory:
            cache.select(rows)
        if self.linear and self.branching:
            self._keep_sums(rows, torch.arange(self._awaited, device=rows.device))
        else:
            for cache in self.own:
                cache.select(rows)
        if self._visible is not None:
            self._visible = self._visible[rows]

    def _keep_sums(self, rows: Tensor, beams: Tensor) -> None:
        """Keep these beams `(N,)` of these rows `(M,)`, or other beams in each row: `(M, N)`."""
        places = rows[:, None] * self._awaited + beams
        for cache in self.own:
            cache.select(places.flatten())


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the causal mask `(S, T)` of the last S of T tokens."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
