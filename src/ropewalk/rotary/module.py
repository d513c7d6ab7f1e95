"""`RotaryEmbedding`: a spec put to work on queries and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ropewalk.rotary import frequencies
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.length_op import at_lengths, constants, enter
from ropewalk.rotary.rotate import rotate, sequence_length
from ropewalk.rotary.shape_checks import (
    INTEGERS,
    check_positions,
    check_positions_of,
    check_same_length,
)
from ropewalk.rotary.spec import RotarySpec

MAX_CACHED_ROWS = 16_384
CPU = torch.device("cpu")


Length: TypeAlias = "int | Tensor | None"
"""The length that is served: one for all, or (B,), for rules whose frequencies depend on it."""


class RotaryEmbedding(nn.Module):
    """Rotates queries and keys by their positions, as `spec` says.

        rope = RotaryEmbedding(RotarySpec(head_dim=64))
        q, k = rope(q, k)                  # positions 0 .. S-1
        q, k = rope(q, k, offset=cached)   # the next S positions of a decode

    Positions are integers; cos and sin are within 1e-7 up to ±2^31, whatever the dtype of q and k.
    (A spec with continuous positions takes floats.) The module has no parameters and no buffers, so
    `.half()`, `to_empty` or a state dict cannot harm it.

    Where positions are contiguous, cos and sin are rows of a table that grows in powers of two to
    at most 16,384 rows per device (4·R bytes each: 8 MiB where R = 128), kept for the two latest
    sets of frequencies. Whatever reaches beyond is computed when asked for: a decode at position
    10,000,000 builds one row. Either way the result is the same.
    """

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        if not isinstance(spec, RotarySpec):
            raise TypeError(
                f"spec must be a RotarySpec, got {spec!r}; "
                f"write RotaryEmbedding(RotarySpec(head_dim=64))"
            )
        self.spec = spec
        # Formed once, so that a compiler finds constants. A dynamic rule has too many to form all.
        few = (None,) if spec.scaling is None else spec.scaling.lengths()
        self._formed_once = {length: constants(spec, length) for length in few}
        self._name = enter(spec) if spec.needs_length else ""
        self._axis_of_pair = None if spec.axis_count == 1 else list(spec.axis_of_pair)
        self._rows: dict[tuple[torch.device, int | None], tuple[Tensor, Tensor]] = {}

    @classmethod
    def from_config(
        cls,
        config: str | PathLike[str] | Mapping[str, Any],
        layer: int = 0,
        stack: str = "text",
        pairing: str | None = None,
    ) -> RotaryEmbedding:
        """The rope of one layer of a model, from its config.json: see `ModelSpec.from_config`.

        What belongs to the scores and is no rotation is not in it: `LayerSpec.softmax_factor`
        (DeepSeek) and `LayerSpec.query_temperature` (Llama 4, Ministral 3).
        """
        from ropewalk.rotary.model_spec import ModelSpec

        rope = ModelSpec.from_config(config, pairing=pairing).layer(layer, stack).rope
        if rope is None:
            raise ValueError(
                f"layer must be one that has a rope, got {layer}, which has none (NoPE): "
                f"leave its q and k as they are"
            )
        return cls(rope)

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
        """Rotate q (B, H, S, D) and k (B, K, T, D); with seq_dim=-3, (B, S, H, D) and (B, T, K, D).

        positions: integers (S,) or (B, S), with axes in front, (A, S) or (A, B, S), where the spec
            has several; of k too, unless key_positions (T,) or (B, T) are given.
        offset: without positions, q (and k) stand at offset, offset + 1, ...
        length: what is served, an int or (B,), where the scaling rule depends on it.

        H and K may differ (GQA), S and T where key_positions are given. Returns both, of the shapes
        and dtypes they came in. Raises ValueError or TypeError that names argument, rule and value.
        """
        if positions is None and key_positions is None:
            both = self._at_once(q, k, offset, length, seq_dim)
            if both is not None:
                return both[0], both[1]
        if key_positions is None:
            check_same_length(q, k, seq_dim)
            check_positions_of("k", k, "positions", positions, seq_dim, self.spec)
        q_tables = self._tables_for("q", q, "positions", positions, offset, length, seq_dim)
        k_tables = q_tables
        if key_positions is not None:
            k_tables = self._tables_for("k", k, "key_positions", key_positions, 0, length, seq_dim)
        elif self._alike(q, k, q_tables):
            pairs = self.spec.pairing, self.spec.write_pairing
            both = operator.rotated((q, k), *q_tables, *pairs, self.spec.start, seq_dim, False)
            return both[0], both[1]
        return self._turn(q, q_tables, seq_dim), self._turn(k, k_tables, seq_dim)

    def rotate(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """Rotate q or k alone; arguments as for the pair."""
        tables = self._tables_for("x", x, "positions", positions, offset, length, seq_dim)
        return self._turn(x, tables, seq_dim)

    def unrotate(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
    ) -> Tensor:
        """The inverse of `rotate`: what x was before it was rotated at these positions."""
        cos, sin = self._tables_for("x", x, "positions", positions, offset, length, seq_dim)
        squared = self._amplitude(length, x.device) ** 2
        return self._turn(x, (cos / squared, sin / squared), seq_dim, adjoint=True)

    def shift(
        self, k: Tensor, by: int | Tensor, length: Length = None, seq_dim: int = -2
    ) -> Tensor:
        """Move turned keys to other positions: each pair turns on by `by` steps, amplitude stays.

        by: an int, or integers (S,) or (B, S) with axes in front where the spec has several: where
        each key goes, less where it was. Keys must have been turned with the same `length`.
        """
        if isinstance(by, int):
            size = (self.spec.axis_count,) * (self.spec.axis_count > 1)
            by = torch.full((*size, sequence_length("k", k, seq_dim)), by, device=k.device)
        cos, sin = self._tables_for("k", k, "by", by, 0, length, seq_dim)
        amplitude = self._amplitude(length, k.device)
        tables = cos / amplitude, sin / amplitude
        written = self.spec.write_pairing
        return _turned(k, tables, self.spec, written, written, seq_dim)

    def tables(self, positions: Tensor, length: Length = None) -> tuple[Tensor, Tensor]:
        """The cos and sin at positions (S,) or (B, S), amplitude included: float32 (..., S, R/2).

        Where the spec has several axes, positions are (A, S) or (A, B, S).
        """
        check_positions("positions", positions, self.spec)
        return self._formed(positions, length)

    def _turn(
        self, x: Tensor, tables: tuple[Tensor, Tensor], seq_dim: int, adjoint: bool = False
    ) -> Tensor:
        spec = self.spec
        return _turned(x, tables, spec, spec.pairing, spec.write_pairing, seq_dim, adjoint)

    def _at_once(
        self, q: Tensor, k: Tensor, offset: int, length: Length, seq_dim: int
    ) -> Sequence[Tensor] | None:
        """Both by rows that are kept already, in one call, which is most of a decode's time.

        None where rows must be formed, something else must know of the call, or it is wrong: for
        all of that the other way is right, and this one has done nothing.
        """
        if torch.compiler.is_compiling():  # it would guard on what rows there are
            return None
        if not self._rows or type(offset) is not int or isinstance(length, Tensor):
            return None
        rows = self._rows.get((CPU, self.spec.served(length)))
        if rows is None or not isinstance(q, Tensor) or not isinstance(k, Tensor):
            return None
        wide = (self.spec.head_dim,)
        if q.shape[-1:] != wide or k.shape[-1:] != wide or self.spec.blocks is not None:
            return None
        pairs = self.spec.pairing == "interleaved", self.spec.write_pairing == "interleaved"
        layout = *pairs, self.spec.start, seq_dim, False
        return operator.rotated_at_once((q, k), *rows, offset, layout)

    def _alike(self, q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor]) -> bool:
        """Whether q and k can be rotated by one call, with nothing left to check."""
        floats = q.is_floating_point() and k.is_floating_point()
        return floats and tables[0].ndim < 4 and self.spec.blocks is None

    def _amplitude(self, length: Length, device: torch.device) -> float | Tensor:
        """One for all, or float32 (B, 1, 1)."""
        amplitude = self._at_length(length)[1]
        return amplitude.float().to(device) if isinstance(amplitude, Tensor) else amplitude

    def _at_length(self, length: Length) -> tuple[Any, float | Tensor]:
        """Turns (R/2) and amplitude, or, for lengths (B,), turns (B, 1, R/2) and (B, 1, 1)."""
        if not isinstance(length, Tensor):
            served = self.spec.served(length)
            if self._formed_once:
                return self._formed_once[served]
            if not torch.compiler.is_compiling():
                return constants(self.spec, served)
            turns, amplitude = at_lengths(torch.full((1,), served or 0), self.spec, self._name)
            return turns[0, 0], amplitude[0, 0, 0]
        if length.ndim != 1 or length.dtype not in INTEGERS:
            raise ValueError(
                f"length must be an int or integers (B,), got {length.dtype} "
                f"of shape {tuple(length.shape)}"
            )
        if not self.spec.needs_length:
            return self._formed_once[None]
        return at_lengths(length, self.spec, self._name)

    def _formed(self, positions: Tensor, length: Length) -> tuple[Tensor, Tensor]:
        """Tables of checked positions."""
        turns, amplitude = self._at_length(length)
        # Apple's GPUs have no float64.
        home = positions.device
        device = torch.device("cpu") if home.type == "mps" else home
        if not isinstance(turns, Tensor):
            dtype = torch.float64 if self.spec.continuous else torch.int64
            turns = torch.tensor(turns, dtype=dtype, device=device)
        if isinstance(amplitude, Tensor):
            amplitude = amplitude.to(device)
        phases = positions.to(device)
        if self._axis_of_pair is None:
            phases = phases.unsqueeze(-1)
        else:
            axes = torch.tensor(self._axis_of_pair, device=device)
            phases = phases.index_select(0, axes).movedim(0, -1)
        cos, sin = frequencies.tables(phases, turns.to(device), amplitude)
        return cos.to(home), sin.to(home)

    def _tables_for(
        self,
        x_name: str,
        x: Tensor,
        name: str,
        positions: Tensor | None,
        offset: int,
        length: Length,
        seq_dim: int,
    ) -> tuple[Tensor, Tensor]:
        """Tables for x's positions, on its device."""
        check_positions_of(x_name, x, name, positions, seq_dim, self.spec)
        batch = x.shape[0] if x.ndim > -seq_dim else 1
        if isinstance(length, Tensor) and length.numel() not in (1, batch):
            raise ValueError(
                f"length must be an int or ({batch},) for {x_name} of shape {tuple(x.shape)} with "
                f"seq_dim={seq_dim}, got shape {tuple(length.shape)}"
            )
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(
                f"offset must be an int, got {offset!r}; "
                f"where it differs within the batch, pass positions"
            )
        if positions is None:
            if type(x) not in (Tensor, nn.Parameter):  # a FakeTensor's rows would hold no numbers
                return self._range_tables(offset, offset + x.shape[seq_dim], length, x.device)
            return self._contiguous_tables(offset, x.shape[seq_dim], length, x.device)
        if offset:
            raise ValueError(
                f"offset must be left at 0 where positions are given, got {offset}; "
                f"add it to the positions"
            )
        return self._formed(positions.to(x.device), length)

    def _contiguous_tables(
        self, offset: int, count: int, length: Length, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Tables at offset .. offset + count - 1, from the cached rows if they may reach."""
        end = offset + count
        # A compiler would keep the cache's tensors out of its graph, or bake them in, and would
        # guard on the comparisons of offset and end.
        compiling = torch.compiler.is_compiling()
        # Rows of a dynamic rule serve one length, which the next token has not.
        passing = compiling or not self._formed_once
        if passing or isinstance(length, Tensor) or offset < 0 or end > MAX_CACHED_ROWS:
            return self._range_tables(offset, end, length, device)
        key = device, self.spec.served(length)
        rows = self._rows.get(key)
        if rows is None or len(rows[0]) < end:
            # Rows made in inference mode could not serve a later training step.
            with torch.inference_mode(False):
                rows = self._range_tables(0, 1 << (end - 1).bit_length(), length, device)
            if torch._C._functorch.is_functorch_wrapped_tensor(rows[0]):
                return rows[0][offset:end], rows[1][offset:end]  # it ends with its transform
            older = [k for k in self._rows if k[0] == device and k != key]
            for old in older[:-1]:  # the latest other frequencies stay: LongRoPE has two sets
                del self._rows[old]
            self._rows[key] = rows
        cos, sin = rows
        return cos[offset:end], sin[offset:end]

    def _range_tables(
        self, start: int, end: int, length: Length, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        positions = torch.arange(start, end, device=device)
        if self._axis_of_pair is not None:  # text among images: all axes alike
            positions = positions.expand(self.spec.axis_count, -1)
        return self._formed(positions, length)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.needs_length:
            enter(self.spec)  # in another process it is not known yet

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles leave the cached rows behind: they are cheap to form again.
        return {**self.__dict__, "_rows": {}}

    def extra_repr(self) -> str:
        return str(self.spec)


def _turned(
    x: Tensor,
    tables: tuple[Tensor, Tensor],
    spec: RotarySpec,
    pairing: Any,
    write_pairing: Any,
    seq_dim: int,
    adjoint: bool = False,
) -> Tensor:
    """Rotate x block by block; mostly there is one."""
    if spec.blocks is None:
        return rotate(
            x,
            *tables,
            pairing=pairing,
            write_pairing=write_pairing,
            start=spec.start,
            seq_dim=seq_dim,
            adjoint=adjoint,
        )
    start, pair = spec.start, 0
    for size in spec.blocks:
        cos, sin = (table[..., pair : pair + size // 2] for table in tables)
        x = rotate(x, cos, sin, pairing=pairing, start=start, seq_dim=seq_dim, adjoint=adjoint)
        start, pair = start + size, pair + size // 2
    return x
