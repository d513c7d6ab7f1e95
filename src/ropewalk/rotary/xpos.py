"""`XPosEmbedding`: a rope with scores that also decay with the distance, sooner in fast pairs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from ropewalk.checks import check_bool, check_number, named_fields, shown
from ropewalk.rotary.kernels.operator import whole
from ropewalk.rotary.rotate import check_dense
from ropewalk.rotary.shape_checks import check_same_length
from ropewalk.rotary.spec import ELSEWHERE, RotarySpec
from ropewalk.rotary.tables import Length, RotaryTables, Tables, apply_tables

GAMMA = 0.4


@named_fields(ELSEWHERE, RotarySpec)
class XPosEmbedding(nn.Module):
    """xPos: rotates q and k as `spec` says, scales pair i of q by z, and of k by 1/z.

    With ζ_i = (2i + 0.4·R) / (1.4·R) and position p,

        z = ζ_i^((p - center) / scale_base).

    In the score of q at m and k at n, the part of pair i is multiplied by
    ζ_i^((m - n) / scale_base). It shrinks as the key is further back. (It grows for keys ahead, so
    xPos is for causal attention.) Scores depend only on the distance, not on `center`.

    scale_base: the larger, the slower the decay. center: the position at which nothing is scaled.
    It must be the same for all queries and keys of one attention, so it is fixed here. The center
    follows the length in torchscale (ceil(S/2)), lucidrains' modules (S//2) and flash-attn (half
    its table): a decode then scales new queries around another point than the cached keys, and
    differs from the prefill. To load such a model, pass any center: at one length its scores do
    not depend on it.

    Scales are powers, and leave the range of a dtype at some distance. Every z must be within
    2^±(E/2 - 4), where 2^E is the dtype's limit, so that the score of q at one end and k at the
    other is finite. So |p - center| ≤ `reach(dtype)`: 16,997 for float32 and bfloat16 and 1,133 for
    float16, with scale_base 512 and any R. Beyond it, raises ValueError. A center in the middle of
    the context doubles the length served. Positions on an accelerator or under a compiler are not
    checked, since that would stall it: there, keys become inf some way beyond twice the reach.

    Positions with several axes have no single distance: such a spec is an error.
    Source: Sun et al. 2022, arXiv 2212.10554, section 3, algorithm 1; microsoft/torchscale,
    `xpos_relative_position.py`, for gamma 0.4 and scale_base 512.

    Example:
        >>> import torch
        >>> from ropewalk import RotarySpec, XPosEmbedding
        >>> xpos = XPosEmbedding(RotarySpec(head_dim=8, pairing="interleaved"))
        >>> q, k = xpos(torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8))  # positions 0 .. 15
        >>> xpos.scales(torch.tensor([0, 512]))  # z of each pair: fast pairs decay sooner
        tensor([[1.0000, 1.0000, 1.0000, 1.0000],
                [0.2857, 0.4643, 0.6429, 0.8214]], dtype=torch.float64)
    """

    def __init__(self, spec: RotarySpec, scale_base: float = 512.0, center: float = 0.0) -> None:
        super().__init__()
        self._tables = RotaryTables(spec)
        if spec.axis_count > 1:
            raise ValueError(
                f"spec must have one axis of positions, got {spec.axis_count} axes; "
                f"xPos is defined for sequences, where there is one distance"
            )
        check_number("scale_base", scale_base, why="; published models use 512")
        number = isinstance(center, (int, float)) and not isinstance(center, bool)
        if not number or not abs(center) <= sys.float_info.max:
            raise ValueError(f"center must be a finite position, got {shown(center)}")
        self.spec, self.scale_base, self.center = spec, scale_base, center
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
        """Rotate and scale q (B, H, S, D) and k (B, K, T, D); arguments as in `RotaryEmbedding`."""
        k_name, k_offset = "key_positions", 0
        if key_positions is None:
            k_name, k_offset, key_positions = "positions", offset, positions
            check_same_length(q, k, seq_dim)
        return (
            self._rotate("q", q, "positions", positions, offset, length, seq_dim, 1),
            self._rotate("k", k, k_name, key_positions, k_offset, length, seq_dim, -1),
        )

    if TYPE_CHECKING:  # torch says Any
        __call__: Callable[..., tuple[Tensor, Tensor]]

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
        """Rotate k alone, and scale it by 1/z, as a cache stores it."""
        return self._rotate("k", k, "positions", positions, offset, length, seq_dim, -1)

    def tables(
        self, positions: Tensor, dtype: torch.dtype, keys: bool = False, length: Length = None
    ) -> Tables:
        """Return cos·z and sin·z at positions (S,) or (B, S), or cos/z and sin/z for keys.

        dtype: that of the q or k to rotate. Tables (…, S, R/2) are float32, or float64 if dtype is.
        """
        check_bool("keys", keys)
        tables = self._tables.at(positions, length)
        return self._scale(tables, "positions", positions, dtype, -1 if keys else 1)

    def scales(self, positions: Tensor) -> Tensor:
        """Return z of each pair at positions (…, S): float64 (…, S, R/2)."""
        # Apple's GPUs have no float64.
        device = torch.device("cpu") if positions.device.type == "mps" else positions.device
        center, base = float(self.center), float(self.scale_base)  # torch takes no int above 2^63
        power = (positions.to(device, torch.float64) - center) / base
        log2_zeta = torch.tensor(self._log2_zeta, dtype=torch.float64, device=device)
        return torch.exp2(power[..., None] * log2_zeta)

    def reach(self, dtype: torch.dtype) -> int:
        """Return how far from `center` positions of q and k of this dtype may be."""
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
        check_dense(name, x)
        positions = whole(positions)
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
        # z is an amplitude for each row and pair, so one rotation does all and rounds once.
        z = self.scales(positions.to(cos.device)) ** sign
        z = z.to(torch.promote_types(dtype, torch.float32)).to(cos.device)
        return cos * z, sin * z

    def _check_reach(self, name: str, ends: tuple[float, float], dtype: torch.dtype) -> None:
        if not dtype.is_floating_point:
            return  # `rotate` raises for it
        reach = self.reach(dtype)
        for position in ends:
            if abs(position - self.center) > reach:
                raise ValueError(
                    f"{name} must be within {reach} of center={self.center} if x is {dtype}, "
                    f"got {position}: scales further out leave the range of the dtype; set center "
                    f"to the middle of the context, or train with a larger scale_base"
                )

    def extra_repr(self) -> str:
        return f"scale_base={self.scale_base}, center={self.center}"
