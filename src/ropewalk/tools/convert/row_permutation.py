"""Which rows of a weight trade places if a rope pairs its dimensions in the other way.

Rows of one head that rotate get another order. A `Place` says where such rows are in a tensor;
which tensors of a model type have them is in `weight_layouts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ropewalk.rotary.spec import Pairing, RotarySpec


def order_of_rows(rotary_dim: int, to: Pairing) -> tuple[int, ...]:
    """Return the old row of each new row, so that weights of one pairing fit the other, `to`.

    Pair i is rows i and i + R/2 of a head in `half`, and rows 2i and 2i + 1 in `interleaved`.

    Example:
        >>> order_of_rows(6, "interleaved")
        (0, 3, 1, 4, 2, 5)
        >>> order_of_rows(6, "half")
        (0, 2, 4, 1, 3, 5)
    """
    pairs = rotary_dim // 2
    if to == "interleaved":
        return tuple(row // 2 + row % 2 * pairs for row in range(rotary_dim))
    return tuple(row % pairs * 2 + row // pairs for row in range(rotary_dim))


def permuted(content: bytes, order: tuple[int, ...]) -> bytes:
    """Return rows of equal size in another order; `content` has len(order) rows."""
    size = len(content) // len(order)
    view = memoryview(content)
    return b"".join([view[row * size : (row + 1) * size] for row in order])


@dataclass(frozen=True)
class Heads:
    """The numbers of heads of one layer: queries H and keys K."""

    queries: int
    keys: int


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor: how many there are, and where each rotating part of R rows begins.

    A tensor without rows of its own, such as the weight of a norm, has one row per number.
    """

    count: int
    starts: tuple[int, ...]


Place = Callable[[Heads, RotarySpec], Rows]


def latent_key(latent_dim: int) -> Place:
    """Return the place of the key that all heads share, after the latent part: (latent + R, …)."""
    return lambda heads, rope: Rows(latent_dim + rope.rotary_dim, (latent_dim,))


def _place(order: Callable[[Heads], list[bool]]) -> Place:
    """Return the place of heads of D rows, of which `order` says whether they rotate."""

    def rows(heads: Heads, rope: RotarySpec) -> Rows:
        rotates = order(heads)
        starts = (i * rope.head_dim + rope.start for i, rotating in enumerate(rotates) if rotating)
        return Rows(len(rotates) * rope.head_dim, tuple(starts))

    return rows


Q, K, V, GATE = True, True, False, False  # whether D rows of a query, key, value or gate rotate
#: All query heads: (H·D, …).
queries = _place(lambda heads: [Q] * heads.queries)
#: All key heads: (K·D, …).
keys = _place(lambda heads: [K] * heads.keys)
#: One head, such as the weight of a norm that all heads share: (D,).
one_head = _place(lambda heads: [Q])
#: Query heads that each have D rows of a gate next to them: (H·2D, …).
gated_queries = _place(lambda heads: [Q, GATE] * heads.queries)
#: All queries, all keys and all values: ((H + 2K)·D, …), as in Phi-3.
blocks_of_heads = _place(lambda heads: [Q] * heads.queries + [K] * heads.keys + [V] * heads.keys)
#: Query, key and value of each head: (H·3·D, …), as in GPT-NeoX.
head_by_head = _place(lambda heads: [Q, K, V] * heads.queries)
#: Each key head with its queries first: (K·(H/K + 2)·D, …), as in Falcon.
groups_of_heads = _place(lambda heads: [*[Q] * (heads.queries // heads.keys), K, V] * heads.keys)
#: Four blocks, each with queries, values and keys of H/4 heads, as in CodeGen.
codegen_blocks = _place(lambda heads: [x for x in (Q, V, K) for _ in range(heads.queries // 4)] * 4)
