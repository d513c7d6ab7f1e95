"""Which rows of a tensor trade places if a rope pairs its dimensions in the other way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ropewalk.rotary.spec import Pairing, RotarySpec


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


def queries(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of all query heads: (H·D, …)."""
    return _consecutive(heads.queries, rope)


def keys(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of all key heads: (K·D, …)."""
    return _consecutive(heads.keys, rope)


def one_head(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of one head, such as the weight of a norm that all heads share: (D,)."""
    return _consecutive(1, rope)


def gated_queries(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of query heads that each have D rows of a gate next to them: (H·2D, …)."""
    step = 2 * rope.head_dim
    return Rows(heads.queries * step, _starts(heads.queries, step, rope))


def blocks_of_heads(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of all queries, all keys and all values: ((H + 2K)·D, …), as in Phi-3."""
    count = heads.queries + 2 * heads.keys
    rotating = heads.queries + heads.keys
    return Rows(count * rope.head_dim, _starts(rotating, rope.head_dim, rope))


def head_by_head(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of query, key and value of each head: (H·3·D, …), as in GPT-NeoX."""
    return groups_of_heads(Heads(heads.queries, heads.queries), rope)


def groups_of_heads(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of each key head with its queries first: (K·(H/K + 2)·D, …), as in Falcon."""
    size = heads.queries // heads.keys + 2
    starts = tuple(
        (group * size + head) * rope.head_dim + rope.start
        for group in range(heads.keys)
        for head in range(size - 1)  # the last one is the value
    )
    return Rows(heads.keys * size * rope.head_dim, starts)


def codegen_blocks(heads: Heads, rope: RotarySpec) -> Rows:
    """Return the rows of CodeGen: four blocks, each with queries, values and keys of H/4 heads."""
    quarter = heads.queries // 4
    starts = tuple(
        ((block * 3 + part) * quarter + head) * rope.head_dim + rope.start
        for block in range(4)
        for part in (0, 2)
        for head in range(quarter)
    )
    return Rows(3 * heads.queries * rope.head_dim, starts)


def latent_key(latent_dim: int) -> Place:
    """Return the place of the key that all heads share, after the latent part: (latent + R, …)."""
    return lambda heads, rope: Rows(latent_dim + rope.rotary_dim, (latent_dim,))


def _consecutive(count: int, rope: RotarySpec) -> Rows:
    return Rows(count * rope.head_dim, _starts(count, rope.head_dim, rope))


def _starts(count: int, step: int, rope: RotarySpec) -> tuple[int, ...]:
    return tuple(head * step + rope.start for head in range(count))
