"""`RotaryEmbedding`: a spec put to work on queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.rotary import frequencies
from ropewalk.rotary.rotate import rotate, sequence_length
from ropewalk.rotary.spec import RotarySpec

MAX_CACHED_ROWS = 16_384
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class RotaryEmbedding(nn.Module):
    """Rotates queries and keys by their positions, as `spec` says.

        rope = RotaryEmbedding(RotarySpec(head_dim=64))
        q, k = rope(q, k)                  # positions 0 .. S-1
        q, k = rope(q, k, offset=cached)   # the next S positions of a decode

    Positions are integers; cos and sin are within 1e-7 up to ±2^31, whatever the dtype of q and k.
    The module has no parameters and no buffers, so `.half()`, `to_empty` or a state dict cannot
    harm it.

    Where positions are contiguous, cos and sin are rows of a table that grows in powers of two to
    at most 16,384 rows per device (4·R bytes each: 8 MiB where R = 128). Whatever reaches beyond is
    computed when asked for: a decode at position 10,000,000 builds one row. Either way the result
    is the same.
    """

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        if not isinstance(spec, RotarySpec):
            raise TypeError(
                f"spec must be a RotarySpec, got {spec!r}; "
                f"write RotaryEmbedding(RotarySpec(head_dim=64))"
            )
        self.spec = spec
        self._turns = frequencies.turns_per_position(spec.rotary_dim, spec.theta)
        self._rows: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        offset: int = 0,
        seq_dim: int = -2,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, S, D) and k (B, K, T, D); with seq_dim=-3, (B, S, H, D) and (B, T, K, D).

        positions: integers (S,) or (B, S); of k too, unless key_positions (T,) or (B, T) are given.
        offset: without positions, q (and k) stand at offset, offset + 1, ...

        H and K may differ (GQA), S and T where key_positions are given. Returns both, of the shapes
        and dtypes they came in. Raises ValueError or TypeError that names argument, rule and value.
        """
        if key_positions is None:
            _check_same_length(q, k, seq_dim)
            self._check("k", k, "positions", positions, seq_dim)
        q_tables = self._tables_for("q", q, "positions", positions, offset, seq_dim)
        k_tables = q_tables
        if key_positions is not None:
            k_tables = self._tables_for("k", k, "key_positions", key_positions, 0, seq_dim)
        return self._turn(q, q_tables, seq_dim), self._turn(k, k_tables, seq_dim)

    def rotate(
        self, x: Tensor, positions: Tensor | None = None, offset: int = 0, seq_dim: int = -2
    ) -> Tensor:
        """Rotate q or k alone; arguments as for the pair."""
        tables = self._tables_for("x", x, "positions", positions, offset, seq_dim)
        return self._turn(x, tables, seq_dim)

    def unrotate(
        self, x: Tensor, positions: Tensor | None = None, offset: int = 0, seq_dim: int = -2
    ) -> Tensor:
        """The inverse of `rotate`: what x was before it was rotated at these positions."""
        tables = self._tables_for("x", x, "positions", positions, offset, seq_dim)
        return self._turn(x, tables, seq_dim, adjoint=True)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cos and sin at integer positions (S,) or (B, S), each float32 (..., S, R/2)."""
        _check_positions("positions", positions)
        return frequencies.tables(positions, self._turns)

    def _turn(
        self, x: Tensor, tables: tuple[Tensor, Tensor], seq_dim: int, adjoint: bool = False
    ) -> Tensor:
        return rotate(x, *tables, pairing=self.spec.pairing, seq_dim=seq_dim, adjoint=adjoint)

    def _tables_for(
        self, x_name: str, x: Tensor, name: str, positions: Tensor | None, offset: int, seq_dim: int
    ) -> tuple[Tensor, Tensor]:
        """Tables for x's positions, on its device."""
        self._check(x_name, x, name, positions, seq_dim)
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(
                f"offset must be an int, got {offset!r}; "
                f"where it differs within the batch, pass positions"
            )
        if positions is None:
            return self._contiguous_tables(offset, x.shape[seq_dim], x.device)
        if offset:
            raise ValueError(
                f"offset must be left at 0 where positions are given, got {offset}; "
                f"add it to the positions"
            )
        return frequencies.tables(positions.to(x.device), self._turns)

    def _contiguous_tables(
        self, offset: int, length: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Tables at offset .. offset + length - 1, from the cached rows if they may reach."""
        end = offset + length
        # A compiler would keep the cache's tensors out of its graph, or bake them in.
        if offset < 0 or end > MAX_CACHED_ROWS or torch.compiler.is_compiling():
            return self._range_tables(offset, end, device)
        rows = self._rows.get(device)
        if rows is None or len(rows[0]) < end:
            # Rows made in inference mode could not serve a later training step.
            with torch.inference_mode(False):
                rows = self._range_tables(0, 1 << (end - 1).bit_length(), device)
            self._rows[device] = rows
        cos, sin = rows
        return cos[offset:end], sin[offset:end]

    def _range_tables(self, start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return frequencies.tables(torch.arange(start, end, device=device), self._turns)

    def _check(
        self, x_name: str, x: Tensor, name: str, positions: Tensor | None, seq_dim: int
    ) -> None:
        """Raise unless x is as wide as this rope, and its positions, where given, fit x's shape."""
        length = sequence_length(x_name, x, seq_dim)
        if x.shape[-1] != self.spec.head_dim:
            raise ValueError(
                f"{x_name}'s last axis must be head_dim={self.spec.head_dim}, "
                f"got shape {tuple(x.shape)}"
            )
        if positions is None:
            return
        _check_positions(name, positions)
        batch = x.shape[0] if x.ndim > -seq_dim else 1
        if tuple(positions.shape) not in {(length,), (1, length), (batch, length)}:
            raise ValueError(
                f"{name} must be ({length},) or ({batch}, {length}) for {x_name} of shape "
                f"{tuple(x.shape)} with seq_dim={seq_dim}, got shape {tuple(positions.shape)}"
            )

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles leave the cached rows behind: they are cheap to form again.
        return {**self.__dict__, "_rows": {}}

    def extra_repr(self) -> str:
        return str(self.spec)


def _check_same_length(q: Tensor, k: Tensor, seq_dim: int) -> None:
    queries, keys = sequence_length("q", q, seq_dim), sequence_length("k", k, seq_dim)
    if queries != keys:
        raise ValueError(
            f"k must be as long as q unless it has positions of its own, "
            f"got {keys} keys and {queries} queries; pass positions and key_positions"
        )


def _check_positions(name: str, positions: Tensor) -> None:
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{name} must be an integer tensor, got {positions!r}; write torch.tensor(...)"
        )
    if positions.dtype not in INTEGERS:
        raise TypeError(
            f"{name} must have an integer dtype, got {positions.dtype}; "
            f"form them with torch.arange, or convert with .long()"
        )
    if positions.ndim not in (1, 2):
        raise ValueError(f"{name} must be (S,) or (B, S), got shape {tuple(positions.shape)}")
