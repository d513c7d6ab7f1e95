"""Wrong rotary code that circulates, as encodings to compare with rotary.

Import it with `--import examples/faulty_rope.py`. Each class repeats one fault on purpose and
explains its effect; do not use any of them in a model. All use the positions they receive, so
chunks and caches change nothing: only the mathematics is wrong.

Notation: a pair of dimensions is (a, b) in a query at position m and (c, d) in a key at n; its
frequency is f. Rotary rotates both by position times f, and the pair adds to the score

    (ac + bd)·cos((m - n)f) + (ad - bc)·sin((m - n)f)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, rotate
from ropewalk.encodings import REGISTRY, AttentionEncoding, Encoding, Placement, StackShape

Tables = tuple[Tensor, Tensor]


class FaultySite(AttentionEncoding):
    """Plain rotary in one layer; subclasses change the tables or the rotation.

    q `(B, H, S, D)` and k `(B, K, T, D)`; tables `(S, D/2)` or `(B, S, D/2)`.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        self.rope = RotaryEmbedding(RotarySpec(head_dim=head_dim, theta=theta))

    def tables(self, positions: Tensor) -> Tables:
        return self.rope.tables(positions)

    def rotate_query(self, q: Tensor, tables: Tables) -> Tensor:
        return rotate(q, *tables, pairing="half")

    def rotate_key(self, k: Tensor, tables: Tables) -> Tensor:
        return self.rotate_query(k, tables)

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        q = self.rotate_query(q, self._shared_tables(placement.queries, placement))
        if k is not None:
            k = self.rotate_key(k, self._shared_tables(placement.new_keys, placement))
        return q, k

    def _shared_tables(self, positions: Tensor, placement: Placement) -> Tables:
        # The placement keeps its positions alive, so the id of their tensor stays unique.
        return placement.memoize((self, id(positions)), lambda: self.tables(positions))


class FaultyRotary(Encoding):
    """An encoding with one site for all layers, and rotary's base theta."""

    site: type[FaultySite]

    def __init__(self, shape: StackShape, theta: float = 10_000.0) -> None:
        super().__init__()
        self.shared = self.site(shape.head_dim, theta)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class SwappedTableSite(FaultySite):
    """The formula of each pair (a, b) if cos and sin exchange their odd columns."""

    def rotate_query(self, q: Tensor, tables: Tables) -> Tensor:
        cos, sin = (table.unsqueeze(-3) for table in tables)  # the same for all heads
        a, b = q[..., 0::2], q[..., 1::2]
        rotated = torch.stack((a * cos - b * sin, a * cos + b * sin), dim=-1)
        return rotated.flatten(-2).to(q.dtype)


class SwappedTable(FaultyRotary):
    """Sine and cosine tables that contain each other's values in the odd columns.

    Pairs are interleaved and x becomes x·C + x'·S, where x' is (-b, a) for a pair (a, b). C should
    have (cos, cos) and S (sin, sin) in the two columns of a pair. Here C has (cos, sin) and S
    (sin, cos), as happens when sinusoidal tables, whose columns alternate, are used for them:

        (a, b)  becomes  (a·cos φ - b·sin φ, a·cos φ + b·sin φ),  φ = m·f

    This is no rotation: its determinant is sin 2φ, its columns are as long as √2·cos φ and
    √2·sin φ, and at position 0 it is (a, a): b is lost. A pair adds to the score

        2ac·cos(mf)·cos(nf) + 2bd·sin(mf)·sin(nf)
            = (ac + bd)·cos((m - n)f) + (ac - bd)·cos((m + n)f)

    which also depends on m + n. The term that changes its sign with the distance is gone: if m and
    n are exchanged, the score stays the same. Acts on queries and keys, like rotary.
    """

    site = SwappedTableSite


class MixedPairingSite(FaultySite):
    """Half pairs in q, interleaved pairs in k."""

    def rotate_key(self, k: Tensor, tables: Tables) -> Tensor:
        return rotate(k, *tables, pairing="interleaved")


class MixedPairing(FaultyRotary):
    """Rotary with half pairs (i, i + D/2) for queries and interleaved pairs (2i, 2i + 1) for keys.

    This happens when q and k are rotated by different code, such as a kernel for q that pairs
    halves and older code for cached keys that pairs neighbors. With R the rotation in half pairs,
    and P the permutation that brings interleaved pairs into halves, a score should be
    qᵀ R(n - m) k, but here it is

        qᵀ R(m)ᵀ Pᵀ R(n) P k

    Both vectors keep their lengths, and at m = n = 0 the score is correct. Elsewhere it depends on
    m and n: P is between the rotations and does not commute with them, so training cannot absorb P
    into the projections. If q and k had the same pairing, it could. Acts on queries and keys, like
    rotary.
    """

    site = MixedPairingSite


class Bfloat16AnglesSite(FaultySite):
    """Half pairs in q and k; tables are rounded at every step."""

    def tables(self, positions: Tensor) -> Tables:
        frequencies = self.rope.spec.inverse_frequencies().to(positions.device, torch.bfloat16)
        angles = positions.to(torch.bfloat16).unsqueeze(-1) * frequencies
        # In float64, so that a position has the same values alone and in a batch: vectorized and
        # scalar float32 cosines may differ in the last bit, and then round differently to bfloat16.
        cos, sin = angles.double().cos(), angles.double().sin()
        return cos.to(torch.bfloat16).float(), sin.to(torch.bfloat16).float()


class Bfloat16Angles(FaultyRotary):
    """Rotary whose positions, frequencies, angles, cosines and sines are bfloat16.

    This happens when frequencies are a buffer, the model is cast with `.to(torch.bfloat16)`, and
    positions take the buffer's dtype. bfloat16 has 8 significant bits, so each of the three
    roundings before the cosine is off by up to one part in 256. With heads of 64, the error of
    cosines and sines is 0 at position 0, at most 0.01 up to position 10 and at most 0.02 up to
    position 20; it exceeds 0.05 by position 32 and 0.5 by position 256. Integers are
    exact up to 256; 257 becomes 256, and past 1024 they are 8 apart, so neighbors get the same
    rotation. Acts on queries and keys, like rotary.
    """

    site = Bfloat16AnglesSite


class CosineMatrix(Encoding):
    """Embeddings x plus cos(m·j·0.01), all multiplied by the matrix cos(i·j·0.01).

    A tutorial that many have copied calls this rotary embedding:

        y_m = (x_m + p_m) C,   p_m[j] = cos(0.01·m·j),   C[i, j] = cos(0.01·i·j)

    where i and j are column numbers. Nothing rotates and there are no pairs. Positions are added
    like sinusoids, so scores depend on absolute positions. C is one matrix for all positions and
    contains no information about them. It does not keep lengths either. At width 128, 71
    singular values are below a 10,000th of the largest; at width 256, 44 are. What the embedding
    has in those directions is lost.
    Acts on embeddings, like the tutorial's class, at any position; no parameters.
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
