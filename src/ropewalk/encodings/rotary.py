"""Rotary position embedding as an encoding: it turns queries and keys, and adds nothing."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.rotary import RotaryEmbedding, RotarySpec, rotate


class RotarySite(AttentionEncoding):
    """Turn queries and keys by their own positions, so that scores depend on the distance alone."""

    def __init__(self, rope: RotaryEmbedding) -> None:
        super().__init__()
        self.rope = rope

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        q = self._turn(q, placement.queries, placement)
        return q, None if k is None else self._turn(k, placement.fresh, placement)

    def _turn(self, x: Tensor, positions: Tensor, placement: Placement) -> Tensor:
        spec = self.rope.spec
        if x.shape[-1] != spec.head_dim:
            raise ValueError(
                f"attention must have the head_dim={spec.head_dim} that this rotary encoding was "
                f"built for, got heads of {x.shape[-1]} dimensions"
            )
        # The placement keeps its positions alive, so the id of such a tensor names them.
        key = (spec, id(positions))
        cos, sin = placement.once(key, lambda: self.rope.tables(positions))
        return rotate(x, cos, sin, pairing=spec.pairing)


class Rotary(Encoding):
    """Rotate pairs of query and key dimensions by position times frequency.

    Acts on queries and keys of every layer; relative; no parameters; any position; keys can be
    cached rotated. ``rotary_dim`` turns only the leading dimensions of each head; ``pairing`` says
    which dimensions form a pair (``half``: i and i + R/2; ``interleaved``: 2i and 2i + 1).
    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, eq. 14 to 16 and 34.
    """

    def __init__(
        self,
        shape: StackShape,
        theta: float = 10_000.0,
        rotary_dim: int | None = None,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__()
        spec = RotarySpec(
            head_dim=shape.head_dim, rotary_dim=rotary_dim, theta=theta, pairing=pairing
        )
        self.shared = RotarySite(RotaryEmbedding(spec))

    def site(self, layer: int) -> AttentionEncoding:
        return self.shared
