"""Rotary code that circulates and is wrong, as encodings to compare with rotary.

Import it with ``--import examples/faulty_rope.py``. Each class repeats one fault on purpose and
says what follows from it; none is of use in a model. All take positions as they are given, so that
chunks and caches change nothing: what is wrong is the mathematics alone.

Notation: a pair of dimensions is (a, b) in a query at position m and (c, d) in a key at n; its
frequency is f. Rotary turns both by position times f, and the pair adds to the score

    (ac + bd)·cos((m - n)f) + (ad - bc)·sin((m - n)f)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, rotate
from ropewalk.encodings import REGISTRY, AttentionEncoding, Encoding, Placement, StackShape

Tables = tuple[Tensor, Tensor]


class FaultySite(AttentionEncoding):
    """What plain rotary does in a layer; subclasses spoil the tables or the rotation.

    q ``(B, H, S, D)`` and k ``(B, K, T, D)``; tables ``(S, D/2)`` or ``(B, S, D/2)``.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        self.rope = RotaryEmbedding(RotarySpec(head_dim=head_dim, theta=theta))

    def tables(self, positions: Tensor) -> Tables:
        return self.rope.tables(positions)

    def turn_query(self, q: Tensor, tables: Tables) -> Tensor:
        return rotate(q, *tables, pairing="half")

    def turn_key(self, k: Tensor, tables: Tables) -> Tensor:
        return self.turn_query(k, tables)

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        q = self.turn_query(q, self._shared_tables(placement.queries, placement))
        if k is not None:
            k = self.turn_key(k, self._shared_tables(placement.new_keys, placement))
        return q, k

    def _shared_tables(self, positions: Tensor, placement: Placement) -> Tables:
        # The placement keeps its positions alive, so the id of such a tensor names them.
        return placement.memoize((self, id(positions)), lambda: self.tables(positions))


class FaultyRotary(Encoding):
    """An encoding of one such site for all layers, with rotary's base theta."""

    site: type[FaultySite]

    def __init__(self, shape: StackShape, theta: float = 10_000.0) -> None:
        super().__init__()
        self.shared = self.site(shape.head_dim, theta)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class SwappedTableSite(FaultySite):
    """Two interleaved tables, odd columns exchanged, written out for a pair."""

    def turn_query(self, q: Tensor, tables: Tables) -> Tensor:
        cos, sin = (table.unsqueeze(-3) for table in tables)  # the same for all heads
        a, b = q[..., 0::2], q[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * cos + b * sin), dim=-1)
        return turned.flatten(-2).to(q.dtype)


class SwappedTable(FaultyRotary):
    """Sine and cosine tables that hold each other's values in the odd columns.

    Pairs are interleaved and x becomes x·C + x'·S, where x' is (-b, a) for a pair (a, b). C should
    hold (cos, cos) and S (sin, sin) in the two columns of a pair; here C holds (cos, sin) and S
    (sin, cos), as where sinusoidal tables, whose columns alternate, are taken for them:

        (a, b)  becomes  (a·cos φ - b·sin φ, a·cos φ + b·sin φ),  φ = m·f

    This is no rotation: its determinant is sin 2φ, its columns are as long as √2·cos φ and
    √2·sin φ, and at position 0 it is (a, a): b is lost. A pair adds to the score

        2ac·cos(mf)·cos(nf) + 2bd·sin(mf)·sin(nf)
            = (ac + bd)·cos((m - n)f) + (ac - bd)·cos((m + n)f)

    which depends on m + n as well. The term that changes its sign with the distance is gone: a
    query at m gives a key at n the score that it would give it at n, were the key at m. Acts on
    queries and keys, as rotary does.
    """

    site = SwappedTableSite


class MixedPairingSite(FaultySite):
    """Half pairs in q, interleaved ones in k."""

    def turn_key(self, k: Tensor, tables: Tables) -> Tensor:
        return rotate(k, *tables, pairing="interleaved")


class MixedPairing(FaultyRotary):
    """Queries rotate in half pairs (i, i + D/2) and keys in interleaved ones (2i, 2i + 1).

    So it is where a checkpoint is converted from one pairing to the other and the rows of one
    projection alone are permuted. With R the rotation in half pairs, and P the permutation that
    brings interleaved pairs into halves, a score should be qᵀ R(n - m) k, and here it is

        qᵀ R(m)ᵀ Pᵀ R(n) P k

    Both vectors keep their lengths, and at m = n = 0 the score is right. Elsewhere it depends on m
    and n: a P inside of the rotations does not commute with them, so training can't absorb it in
    the projections, as it could where both were paired alike. Acts on queries and keys, as rotary
    does.
    """

    site = MixedPairingSite


class Bfloat16AnglesSite(FaultySite):
    """Half pairs in both; tables rounded at every step."""

    def tables(self, positions: Tensor) -> Tables:
        frequencies = self.rope.spec.inverse_frequencies().to(positions.device, torch.bfloat16)
        angles = positions.to(torch.bfloat16).unsqueeze(-1) * frequencies
        # By way of float64, so that a row is the same alone and among others: vectorized cosines
        # differ in their last bit, which may tip the rounding.
        cos, sin = angles.double().cos(), angles.double().sin()
        return cos.to(torch.bfloat16).float(), sin.to(torch.bfloat16).float()


class Bfloat16Angles(FaultyRotary):
    """Rotary whose positions, frequencies, angles, cosines and sines are bfloat16.

    So it is where frequencies are a buffer, the model is cast with ``.to(torch.bfloat16)``, and
    positions take the buffer's dtype. bfloat16 has 8 significant bits, so each of the three
    roundings before the cosine is off by up to one part in 256. With heads of 64, cosines and sines
    are exact at position 0, off by up to 0.01 up to position 10, 0.02 up to 20, more than 0.05 by
    position 32 and more than 0.5 by 256. Integers are exact up to 256; 257 becomes 256, and past
    1024 they are 8 apart, so that neighbors are rotated alike. Acts on queries and keys, as rotary
    does.
    """

    site = Bfloat16AnglesSite


class CosineMatrix(Encoding):
    """Embeddings x plus cos(m·j·0.01), all multiplied by the matrix cos(i·j·0.01).

    It goes by the name of rotary embedding in a tutorial that many have copied:

        y_m = (x_m + p_m) C,   p_m[j] = cos(0.01·m·j),   C[i, j] = cos(0.01·i·j)

    where i and j count the columns. Nothing rotates and no pair is formed. Positions are added, as
    sinusoidal ones are, so scores depend on absolute positions. C is one matrix for all positions
    and tells nothing of them. Nor does it keep lengths: of 128 singular values, 71 are below a
    10,000th of the greatest, of 256 there are 44, and such directions of an embedding are lost.
    Acts on embeddings, where the tutorial's class does, at any position; no parameters.
    """

    step = 0.01

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.width = shape.width

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        columns = torch.arange(self.width, device=x.device)
        added, matrix = (
            (rows.unsqueeze(-1) * columns).double().mul(self.step).cos().to(x.dtype)
            for rows in (positions.to(x.device), columns)
        )
        return (x + added) @ matrix


REGISTRY["swapped_table"] = SwappedTable
REGISTRY["mixed_pairing"] = MixedPairing
REGISTRY["bfloat16_angles"] = Bfloat16Angles
REGISTRY["cosine_matrix"] = CosineMatrix
