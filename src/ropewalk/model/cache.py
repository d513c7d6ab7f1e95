"""Keys and values that generation keeps, so that each token is projected once."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention layer: k and v ``(B, K, T, D)``, T growing as tokens come.

    Memory is taken in doublings, so that n single tokens copy O(n) rows and not O(n^2).
    """

    def __init__(self) -> None:
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens at the end and give all that are held."""
        end = self.length + keys.shape[-2]
        if self._keys is None or self._values is None or end > self._keys.shape[-2]:
            self._keys = self._grown(self._keys, keys, end)
            self._values = self._grown(self._values, values, end)
        self._keys[..., self.length : end, :] = keys
        self._values[..., self.length : end, :] = values
        self.length = end
        return self.held()

    def held(self) -> tuple[Tensor, Tensor]:
        """Give the keys and values of all tokens so far."""
        if self._keys is None or self._values is None:
            raise RuntimeError("the cache holds nothing yet: append first")
        return self._keys[..., : self.length, :], self._values[..., : self.length, :]

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)

    def _grown(self, held: Tensor | None, new: Tensor, end: int) -> Tensor:
        capacity = max(16, 1 << (end - 1).bit_length())
        grown = new.new_empty(*new.shape[:-2], capacity, new.shape[-1])
        if held is not None:
            grown[..., : self.length, :] = held[..., : self.length, :]
        return grown


class DecoderCache:
    """What a decoder keeps between steps: for each layer, own keys and values and the memory's.

    A *branching* cache serves beam search: a row is a sentence, and each step brings one token for
    each of its beams, all at one position. No key is ever moved or repeated: a beam sees the cached
    tokens that it goes on from (``enter``, ``follow``), and all share the keys of their memory.
    """

    def __init__(self, layers: int, *, branching: bool = False) -> None:
        self.own = [KeyValueCache() for _ in range(layers)]
        self.memory = [KeyValueCache() for _ in range(layers)]
        self.branching = branching
        self._beams: list[int] = []  # of each step
        self._visible: Tensor | None = None  # (B, beams, T)

    @property
    def length(self) -> int:
        """Number of target positions seen."""
        if self.branching:
            return len(self._beams)
        return self.own[0].length if self.own else 0

    def enter(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Take note of new tokens ``(B, S)`` that the layers are about to append.

        Gives the positions ``(T,)`` of all tokens, the new ones last, and what these may look at,
        ``(B, S, T)``, or None where they look back at everything.
        """
        new, device = target.shape[1], target.device
        if not self.branching:
            return torch.arange(self.length + new, device=device), None
        seen = torch.eye(new, dtype=torch.bool, device=device).expand(len(target), -1, -1)
        if self._visible is not None:
            if self._visible.shape[1] != new:
                raise ValueError(
                    f"target must bring one token for each of {self._visible.shape[1]} beams, "
                    f"got shape {tuple(target.shape)}"
                )
            seen = torch.cat((self._visible, seen), -1)
        self._visible = seen
        self._beams.append(new)
        steps, beams = torch.arange(self.length), torch.tensor(self._beams)
        return steps.repeat_interleave(beams).to(device), seen

    def follow(self, parents: Tensor) -> None:
        """Let the next step's beams go on from these of the last one's: ``(B, beams)``."""
        if self._visible is None:
            raise RuntimeError("only the beams of a branching cache can be followed, after a step")
        index = parents[..., None].expand(-1, -1, self._visible.shape[-1])
        self._visible = self._visible.gather(1, index)

    def select(self, rows: Tensor) -> None:
        """Keep these batch rows, in this order."""
        for cache in self.own + self.memory:
            cache.select(rows)
        if self._visible is not None:
            self._visible = self._visible[rows]


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Give the mask ``(S, T)`` by which the last S of T tokens look at themselves and back."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
