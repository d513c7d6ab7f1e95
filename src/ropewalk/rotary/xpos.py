"""`XPosEmbedding`: a rope whose scores also decay with the distance, sooner in fast pairs."""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from ropewalk.checks import check_number, named_fields, shown
from ropewalk.rotary.shape_checks import check_same_length
from ropewalk.rotary.spec import ELSEWHERE, RotarySpec
from ropewalk.rotary.tables import Length, RotaryTables, Tables, apply_tables

GAMMA = 0.4


@named_fields(ELSEWHERE, RotarySpec)
class XPosEmbedding(nn.Module):
    """Rotate q and k as `spec` says, and scale pair i of q by z, of k by 1/z: xPos.

        xpos = XPosEmbedding(RotarySpec(head_dim=64, pairing="interleaved"))
        q, k = xpos(q, k)                  # positions 0 .. S-1
        q, k = xpos(q, k, offset=cached)   # the next S positions of a decode

    With ζ_i = (2i + 0.4·R) / (1.4·R) and position p,

        z = ζ_i^((p - centre) / scale_base),

    so that of the score of q at m and k at n, pair i's part is multiplied by
    ζ_i^((m - n) / scale_base): less the further back the key lies. (It grows for keys ahead, so
    xPos is for causal attention.) Scores depend on the distance alone, and not on the centre.

    scale_base: the larger, the slower the decay. centre: the position at which nothing is scaled,
    the same for all that meet in attention. A centre that follows the length, as in torchscale
    (ceil(S/2)), lucidrains' modules (S//2) and flash-attn (half its table), scales a new query
    about another point than the cached keys were, and a decode then differs from the prefill; here
    it is fixed. To load such a model, give any: its scores at one length do not depend on it.

    Scales are powers that leave a dtype's range in the end. So that even the score of q at one end
    and k at the other stays finite, every z must lie within 2^±(E/2 - 4), where 2^E is the dtype's
    limit: |p - centre| ≤ `reach(dtype)`, with scale_base 512 and any R 16,997 for float32 and
    bfloat16 and 1,133 for float16. Beyond, ValueError; a centre in the middle of the context
    doubles what is served. Positions on an accelerator or under a compiler are not looked at, which
    would stall it: there, keys become inf some way behind twice the reach.

    Where positions have several axes there is no one distance: such a spec is refused.
    Source: Sun et al. 2022, arXiv 2212.10554, section 3, algorithm 1; microsoft/torchscale,
    `xpos_relative_position.py`, for gamma 0.4 and scale_base 512.
    """

    def __init__(self, spec: RotarySpec, scale_base: float = 512.0, centre: float = 0.0) -> None:
        super().__init__()
        self._tables = RotaryTables(spec)
        if spec.axis_count > 1:
            raise ValueError(
                f"spec must have one axis of positions, for there is one distance, "
                f"got {spec.axis_count} axes; xPos is defined for sequences"
            )
        check_number("scale_base", scale_base, why="; published models use 512")
        number = isinstance(centre, (int, float)) and not isinstance(centre, bool)
        if not number or not abs(centre) <= sys.float_info.max:
            raise ValueError(f"centre must be a finite position, got {shown(centre)}")
        self.spec, self.scale_base, self.centre = spec, scale_base, centre
        rotary_dim = int(spec.rotary_dim)
        self._log2_zeta = [
            math.log2((2 * i + GAMMA * rotary_dim) / ((1 + GAMMA) * rotary_dim))
            for i in range(spec.pairs)
        ]

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> tuple[Tensor, Tensor]:
        """Rotate and scale q (B, H, S, D) and k (B, K, T, D); arguments as of `RotaryEmbedding`."""
        own_positions = key_positions is not None
        if not own_positions:
            key_positions = positions
            check_same_length(q, k, seq_dim)
        k_name, k_offset = ("key_positions", 0) if own_positions else ("positions", offset)
        return (
            self._rotate("q", q, "positions", positions, offset, length, seq_dim, 1),
            self._rotate("k", k, k_name, key_positions, k_offset, length, seq_dim, -1),
        )

    def rotate_queries(
        self,
        q: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """Rotate q alone, and scale it by z."""
        return self._rotate("q", q, "positions", positions, offset, length, seq_dim, 1)

    def rotate_keys(
        self,
        k: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """Rotate k alone, and scale it by 1/z: what a cache keeps."""
        return self._rotate("k", k, "positions", positions, offset, length, seq_dim, -1)

    def tables(
        self, positions: Tensor, dtype: torch.dtype, keys: bool = False, length: Length = None
    ) -> Tables:
        """Return cos·z and sin·z at positions (S,) or (B, S), or cos/z and sin/z for keys.

        dtype: that of the q or k which they will rotate; tables (…, S, R/2) are float32, or float64
        if it is.
        """
        tables = self._tables.at(positions, length)
        return self._scale(tables, "positions", positions, dtype, -1 if keys else 1)

    def scales(self, positions: Tensor) -> Tensor:
        """The z of each pair at positions (…, S): float64 (…, S, R/2)."""
        # Apple's GPUs have no float64.
        device = torch.device("cpu") if positions.device.type == "mps" else positions.device
        centre, base = float(self.centre), float(self.scale_base)  # torch takes no int above 2^63
        power = (positions.to(device, torch.float64) - centre) / base
        log2_zeta = torch.tensor(self._log2_zeta, dtype=torch.float64, device=device)
        return torch.exp2(power[..., None] * log2_zeta)

    def reach(self, dtype: torch.dtype) -> int:
        """How far from the centre positions may lie for q and k of this dtype."""
        _, exponent = math.frexp(torch.finfo(dtype).max)
        return int(self.scale_base * (exponent / 2 - 4) / -min(self._log2_zeta))

    def _rotate(
        self,
        name: str,
        x: Tensor,
        positions_name: str,
        positions: Tensor | None,
        offset: int,
        length: Length,
        seq_dim: int,
        sign: int,
    ) -> Tensor:
        tables = self._tables.for_tensor(
            x, positions, offset, length, seq_dim, name=name, positions_name=positions_name
        )
        if positions is None:
            end = offset + x.shape[seq_dim]
            self._check_reach(positions_name, (offset, end - 1), x.dtype)
            positions = torch.arange(offset, end, device=x.device)
        tables = self._scale(tables, positions_name, positions, x.dtype, sign)
        return apply_tables(self.spec, tables, x, seq_dim=seq_dim)[0]

    def _scale(
        self, tables: Tables, name: str, positions: Tensor, dtype: torch.dtype, sign: int
    ) -> Tables:
        cos, sin = tables
        if positions.device.type == "cpu" and positions.numel() and not is_compiling():
            self._check_reach(name, (positions.min().item(), positions.max().item()), dtype)
        # z is an amplitude that differs from row to row and from pair to pair: one rotation does
        # it all, and rounds once.
        z = self.scales(positions.to(cos.device)) ** sign
        z = z.to(torch.promote_types(dtype, torch.float32)).to(cos.device)
        return cos * z, sin * z

    def _check_reach(self, name: str, ends: tuple[float, float], dtype: torch.dtype) -> None:
        if not dtype.is_floating_point:
            return  # `rotate` says what is wrong
        reach = self.reach(dtype)
        for position in ends:
            if abs(position - self.centre) > reach:
                raise ValueError(
                    f"{name} must lie within {reach} of centre={self.centre} where x is {dtype}, "
                    f"got {position}: scales further out leave the range of the dtype; put the "
                    f"centre in the middle of the context, or train with a larger scale_base"
                )

    def extra_repr(self) -> str:
        return f"scale_base={self.scale_base}, centre={self.centre}"
