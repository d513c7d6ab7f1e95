"""xPos as an encoding: a rotation whose scores decay with the distance of earlier keys."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.rotary import RotarySite, check_head_dim
from ropewalk.rotary import Pairing, RotaryEmbedding, RotarySpec, XPosEmbedding
from ropewalk.rotary.tables import Tables, apply_tables


class XPosSite(AttentionEncoding):
    """Rotate queries and keys by their positions; scale pairs of queries by z, of keys by 1/z."""

    def __init__(self, xpos: XPosEmbedding) -> None:
        super().__init__()
        self.xpos = xpos

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        q = self._rotate(q, placement.queries, placement, keys=False)
        return q, None if k is None else self._rotate(k, placement.new_keys, placement, keys=True)

    def _rotate(self, x: Tensor, positions: Tensor, placement: Placement, keys: bool) -> Tensor:
        check_head_dim("xpos", self.xpos.spec, x)
        tables = self._tables(positions, placement, x.dtype, keys)
        return apply_tables(self.xpos.spec, tables, x)[0]

    def _tables(
        self, positions: Tensor, placement: Placement, dtype: torch.dtype, keys: bool
    ) -> Tables:
        # The placement keeps its positions alive, so their id is a safe key.
        key = self.xpos, id(positions), dtype, keys
        return placement.memoize(key, lambda: self.xpos.tables(positions, dtype, keys))


class XPos(Encoding):
    """Rotate as `rotary` does, and let scores decay with the distance, sooner in fast pairs.

    Pair i of a query at m is rotated and multiplied by ζ_i^((m - center) / scale_base). Pair i of a
    key at n is rotated and multiplied by ζ_i^((center - n) / scale_base), with
    ζ_i = (2i + 0.4·R) / (1.4·R). In their score, pair i's part is thus multiplied by
    ζ_i^((m - n) / scale_base).

    Acts on queries and keys of every layer; relative. Costs as much as `rotary`; no parameters. The
    center is fixed and no score depends on it, so keys can be cached rotated. Positions have a
    limit: with scale_base=512 they may be up to 16,997 from the center in float32 and bfloat16, and
    up to 1,133 in float16 (`XPosEmbedding`).

    xPos is defined for causal attention only: for a key after the query, m - n < 0 and its factor
    grows with the distance instead of decaying. So a stack that looks both ways (an encoder or
    cross-attention) is refused unless `both_ways` is given.
    Source: Sun et al. 2022, arXiv 2212.10554, section 3, algorithm 1; microsoft/torchscale.

    theta, rotary_dim, pairing: as in `rotary`.
    scale_base: the larger, the slower the decay.
    center: set it to the middle of long contexts, which doubles the length that can be served.
    both_ways: what to use in a stack that looks both ways. `rotary` rotates without scales; `xpos`
        uses the formula unchanged, as torchscale also does in its encoders.
    """

    def __init__(
        self,
        shape: StackShape,
        theta: float = 10_000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "half",
        scale_base: float = 512.0,
        center: float = 0.0,
        both_ways: Literal["rotary", "xpos"] | None = None,
    ) -> None:
        super().__init__()
        if both_ways not in (None, "rotary", "xpos"):
            raise ValueError(f"both_ways must be rotary, xpos or None, got {shown(both_ways)}")
        if not shape.causal and both_ways is None:
            raise ValueError(
                "both_ways must be rotary or xpos in an encoder or in cross-attention, which look "
                "both ways, got None: xPos is for causal attention, because its scores grow with "
                "the distance to keys ahead; write xpos(both_ways=rotary) to rotate without "
                "scales, or xpos(both_ways=xpos) for the formula unchanged"
            )
        spec = RotarySpec(
            head_dim=shape.head_dim, rotary_dim=rotary_dim, theta=theta, pairing=pairing
        )
        xpos = XPosEmbedding(spec, scale_base, center)
        scaled = shape.causal or both_ways == "xpos"
        self.shared = XPosSite(xpos) if scaled else RotarySite(RotaryEmbedding(spec))

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
