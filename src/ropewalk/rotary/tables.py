"""cos and sin tables of a rope: computed, cached for contiguous positions, and applied.

Sizes: `A` axes of a position (1 for text, 3 in M-RoPE: time, height, width), `B` batch,
`S` sequence, `D` head_dim, `R` rotary_dim.

A rule that depends on the length computes its frequencies in decimal arithmetic, which no compiler
can trace. A graph has one call of the operator `ropewalk::at_lengths` instead, and does not depend
on the length.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.rotary import frequencies
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.kernels.operator import PLAIN, is_sharded, whole
from ropewalk.rotary.reference import Layout
from ropewalk.rotary.rotate import check_tables
from ropewalk.rotary.shape_checks import (
    INTEGERS,
    check_has_numbers,
    check_offset,
    check_positions,
    check_serves,
    check_tensor,
    check_width,
    tokens,
)
from ropewalk.rotary.spec import Pairing, RotarySpec

MAX_CACHED_ROWS = 16_384
CPU = torch.device("cpu")

Tables: TypeAlias = tuple[Tensor, Tensor]
"""cos and sin, float32 (or float64) (…, S, R/2), amplitude included."""

Length: TypeAlias = "int | Tensor | None"
"""Number of tokens of the complete sequence, for rules that depend on it: an int, or (B,)."""


class RopeTables(ABC):
    """The tables of one rope, with fixed or learned frequencies."""

    def __init__(self, spec: RotarySpec) -> None:
        if not isinstance(spec, RotarySpec):
            raise TypeError(
                f"spec must be a RotarySpec, got {shown(spec)}; write RotarySpec(head_dim=64)"
            )
        self.spec = spec

    def at(self, positions: Tensor, length: Length = None) -> Tables:
        """Return tables at positions (S,) or (B, S); (A, S) or (A, B, S) for several axes.

        Raises TypeError or ValueError for other positions.
        """
        check_positions("positions", positions, self.spec)
        return self._build_tables(whole(positions), length)

    def for_tensor(
        self,
        x: Any,
        positions: Tensor | None,
        offset: int = 0,
        length: Length = None,
        seq_dim: int = -2,
        *,
        name: str = "x",
        positions_name: str = "positions",
        distances: bool = False,
    ) -> Tables:
        """Return the tables that rotate x, on its device; names are for error messages.

        Without positions, x is at offset, offset + 1 and so on.
        distances: True if x is already rotated, and `positions` contains the distance by which to
            move each token. Distances are not checked against length.
        """
        check_tensor(name, x, positions_name, positions, seq_dim, self.spec)
        if x.is_nested:
            if positions is None:
                places = torch.arange(tokens(x).shape[seq_dim], device=x.device)
                check_offset(offset, len(places))
                begins = x.offsets()
                places -= begins[torch.bucketize(places, begins[1:-1], right=True)]
                all_axes = [self.spec.axis_count] * (self.spec.axis_count > 1)
                positions, offset = (places + offset).expand(*all_axes, -1), 0
            elif positions.is_nested:
                positions = positions.values()
            x = tokens(x)
        batch = x.shape[0] if x.ndim > -seq_dim else 1
        if isinstance(length, Tensor) and length.numel() not in (1, batch):
            raise ValueError(
                f"length must be an int, or integers of shape ({batch},), one for each sequence, "
                f"got shape {tuple(length.shape)}; {name} has shape {tuple(x.shape)} with "
                f"seq_dim={seq_dim}"
            )
        check_offset(offset, x.shape[seq_dim])
        if positions is None:
            end = offset + x.shape[seq_dim]
            check_serves(length, self.spec, end)
            # Rows computed for a FakeTensor contain no numbers, so they must not be cached.
            if type(x.to_local() if is_sharded(x) else x) not in PLAIN:
                return self._build_range(offset, end, length, x.device)
            return self._contiguous(offset, end, length, x.device)
        if offset:
            raise ValueError(
                f"offset must be left at 0 if positions are given, got {shown(offset)}; "
                f"add it to the positions"
            )
        check_has_numbers(positions_name, positions, x)
        positions = whole(positions)
        if not distances:
            check_serves(length, self.spec, None, positions)
        return self._build_tables(positions.to(x.device), length)

    def amplitude(self, length: Length, device: torch.device) -> float | Tensor:
        """Return the tables' amplitude: a float, or float32 (B, 1, 1) for lengths (B,)."""
        return self.spec.amplitude_at(None)

    def cached_rows(self, length: int | None) -> Tables | None:
        """Return the rows cached on the CPU for this length, from position 0 on, or None."""
        return None

    @abstractmethod
    def _build_tables(self, positions: Tensor, length: Length) -> Tables:
        """Return tables at positions that have been checked."""

    def _contiguous(self, start: int, end: int, length: Length, device: torch.device) -> Tables:
        """Return tables at start .. end - 1, from cached rows if there are any."""
        return self._build_range(start, end, length, device)

    def _build_range(self, start: int, end: int, length: Length, device: torch.device) -> Tables:
        positions = torch.arange(start, end, device=device)
        if self.spec.axis_count > 1:  # text tokens have the same position on every axis
            positions = positions.expand(self.spec.axis_count, -1)
        return self._build_tables(positions, length)


class RotaryTables(RopeTables):
    """Tables of fixed frequencies: exact, and cached for contiguous positions.

    Each device caches rows (4·R bytes each) from position 0 on. If the scaling rule has several
    sets of frequencies, chosen by the length, the two latest are cached. The number of cached rows
    is a power of two, at most 16,384; a call that includes a later position computes its own rows.
    Copies and pickles do not include the cached rows, which are cheap to compute again.
    """

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__(spec)
        # Computed once, so that a compiler finds constants. With a dynamic rule, every length has
        # its own frequencies: the dict is empty.
        lengths = (None,) if spec.scaling is None else spec.scaling.possible_lengths()
        self._constants = {length: constants(spec, length) for length in lengths}
        self._registered_name = register(spec) if spec.needs_length else ""
        self._axis_of_pair = None if spec.axis_count == 1 else list(spec.axis_of_pair)
        self._rows: dict[tuple[torch.device, int | None], Tables] = {}

    def amplitude(self, length: Length, device: torch.device) -> float | Tensor:
        amplitude = self._at_length(length, device)[1]
        return amplitude.float().to(device) if isinstance(amplitude, Tensor) else amplitude

    def cached_rows(self, length: int | None) -> Tables | None:
        return self._rows.get((CPU, self.spec.length_key(length))) if self._rows else None

    def _build_tables(self, positions: Tensor, length: Length) -> Tables:
        home = positions.device
        device = CPU if home.type == "mps" else home  # Apple's GPUs have no float64
        per_pair, amplitude = self._at_length(length, device)
        if not isinstance(per_pair, Tensor):
            dtype = torch.float64 if self.spec.continuous else torch.int64
            per_pair = torch.tensor(per_pair, dtype=dtype, device=device)
        if isinstance(amplitude, Tensor):
            amplitude = amplitude.to(device)
        positions = positions.to(device)
        if self._axis_of_pair is None:
            positions = positions.unsqueeze(-1)
        else:
            axes = torch.tensor(self._axis_of_pair, device=device)
            positions = positions.index_select(0, axes).movedim(0, -1)
        cos, sin = frequencies.cos_sin(positions, per_pair.to(device), amplitude)
        return cos.to(home), sin.to(home)

    def _at_length(self, length: Length, device: torch.device) -> tuple[Any, float | Tensor]:
        """Return frequencies (R/2,) and amplitude; lengths (B,) give (B, 1, R/2) and (B, 1, 1)."""
        if not isinstance(length, Tensor):
            if self.spec.needs_length and length is not None and torch.compiler.is_compiling():
                return self._traced(length, device)
            key = self.spec.length_key(length)
            return self._constants[key] if self._constants else constants(self.spec, key)
        if length.ndim != 1 or length.dtype not in INTEGERS:
            raise ValueError(
                f"length must be an int, or integers of shape (B,) for B rows, got {length.dtype} "
                f"of shape {tuple(length.shape)}"
            )
        if not self.spec.needs_length:
            return self._constants[None]
        check_has_numbers("length", length)
        return at_lengths(length, self.spec, self._registered_name)

    def _traced(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return frequencies and amplitude under torch.compile: one graph serves every length."""
        self.spec.check_length(length)
        if not self._constants:
            lengths = torch.full((1,), length, device=CPU)
            per_pair, amplitude = at_lengths(lengths, self.spec, self._registered_name)
            return per_pair[0, 0], amplitude[0, 0, 0]
        # Each set of frequencies is for lengths from its key up to the next key.
        keys = [key or 0 for key in self._constants]
        lengths = torch.full((), length, device=device)
        chosen = (lengths >= torch.tensor(keys[1:], device=device)).sum().reshape(1)
        sets = self._constants.values()
        dtype = torch.float64 if self.spec.continuous else torch.int64
        per_pair = torch.tensor([row for row, _ in sets], dtype=dtype, device=device)
        amplitude = torch.tensor([a for _, a in sets], dtype=torch.float64, device=device)
        return per_pair.index_select(0, chosen)[0], amplitude.index_select(0, chosen)[0]

    def _contiguous(self, start: int, end: int, length: Length, device: torch.device) -> Tables:
        # Under torch.compile the cache is not used: its tensors would stay outside the graph or
        # become constants, and each comparison of start and end could cause a recompilation.
        compiling = torch.compiler.is_compiling()
        # Rows of a dynamic rule serve one length, and the next token has another length.
        uncached = compiling or not self._constants
        if uncached or isinstance(length, Tensor) or start < 0 or end > MAX_CACHED_ROWS:
            return self._build_range(start, end, length, device)
        key = device, self.spec.length_key(length)
        rows = self._rows.get(key)
        if rows is None or len(rows[0]) < end:
            # Rows made in inference mode could not serve a later training step.
            with torch.inference_mode(False):
                rows = self._build_range(0, 1 << (end - 1).bit_length(), length, device)
            if torch._C._functorch.is_functorch_wrapped_tensor(rows[0]):
                return rows[0][start:end], rows[1][start:end]  # valid only within its transform
            older = [k for k in self._rows if k[0] == device and k != key]
            for old in older[:-1]:  # keep the latest other set: LongRoPE alternates between two
                del self._rows[old]
            self._rows[key] = rows
        cos, sin = rows
        return cos[start:end], sin[start:end]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.spec.needs_length:
            register(self.spec)  # another process does not know this spec yet


def apply_tables(
    spec: RotarySpec,
    tables: Tables,
    *xs: Tensor,
    seq_dim: int = -2,
    adjoint: bool = False,
    pairing: Pairing | None = None,
) -> tuple[Tensor, ...]:
    """Rotate tensors by the same tables, as the spec says, in one call.

    Uses the spec's fields for the dimensions that rotate and their pairs: head_dim, pairing,
    write_pairing, start, blocks.

    xs, tables: as `rotate` takes them, with seq_dim.
    adjoint: apply the transpose: angles are negated, xs are read in `write_pairing`, and results
        are in `pairing`.
    pairing: how pairs are read, if not as in spec.pairing; for keys that are already rotated, pass
        spec.write_pairing.
    Returns rotated tensors of the same dtypes. Raises ValueError or TypeError if tables and tensors
    do not match.
    """
    cos, sin = tables
    rotated = tuple(map(tokens, xs))
    for x in rotated:
        check_width("x", x, spec)
        check_tables(cos, sin, x, seq_dim)
    read = spec.pairing if pairing is None else pairing
    layout = Layout.of(read, spec.write_pairing, spec.start, seq_dim, adjoint)
    if spec.blocks is None:
        rotated = tuple(operator.dispatch(rotated, cos, sin, layout))
    first_pair = 0
    for size in spec.blocks or ():
        part = slice(first_pair, first_pair + size // 2)
        rotated = tuple(operator.dispatch(rotated, cos[..., part], sin[..., part], layout))
        layout = layout._replace(start=layout.start + size)
        first_pair += size // 2
    return tuple(map(_nested_as, xs, rotated))


def _nested_as(x: Any, rotated: Tensor) -> Tensor:
    if not x.is_nested:
        return rotated
    return torch.nested.nested_tensor_from_jagged(
        rotated.squeeze(0), x.offsets(), x.lengths(), jagged_dim=x._ragged_idx,
        min_seqlen=x._maybe_min_seqlen, max_seqlen=x._maybe_max_seqlen,
    )  # fmt: skip


LIBRARY = torch.library.Library("ropewalk", "FRAGMENT")
LIBRARY.define(
    "at_lengths(Tensor lengths, str rope, int pairs, bool fixed_point) -> (Tensor, Tensor)"
)

_ROPES: dict[str, RotarySpec] = {}


def register(spec: RotarySpec) -> str:
    """Register a spec with the operator, which takes no objects; return its name there."""
    # A hash of all fields: the same in another process, which may load an exported program.
    values = [(field.name, getattr(spec, field.name)) for field in fields(spec)]
    name = hashlib.sha256(repr(values).encode()).hexdigest()
    _ROPES[name] = spec
    return name


def constants(spec: RotarySpec, length: int | None) -> tuple[tuple[int | float, ...], float]:
    """Return each pair's frequency, fixed-point (radians, if continuous), and the amplitude."""
    if spec.continuous:
        return tuple(spec.inverse_frequencies(length).tolist()), spec.amplitude_at(length)
    return spec.fixed_point_frequencies(length), spec.amplitude_at(length)


def at_lengths(lengths: Tensor, spec: RotarySpec, name: str) -> tuple[Tensor, Tensor]:
    """Return frequencies (B, 1, R/2), int64 or float64, and amplitudes (B, 1, 1) of lengths (B,).

    Both are on the CPU, where they are computed.
    """
    if torch.compiler.is_compiling():
        call = torch.ops.ropewalk.at_lengths
        frequencies, amplitudes = call(lengths.cpu(), name, spec.pairs, not spec.continuous)
        return frequencies, amplitudes
    return _compute(spec, lengths)


def _compute(spec: RotarySpec, lengths: Tensor) -> tuple[Tensor, Tensor]:
    rows = [constants(spec, length) for length in lengths.tolist()]
    dtype = torch.float64 if spec.continuous else torch.int64
    frequencies = torch.tensor([row for row, _ in rows], dtype=dtype, device="cpu")
    amplitudes = torch.tensor([a for _, a in rows], dtype=torch.float64, device="cpu")
    return frequencies.reshape(len(rows), 1, spec.pairs), amplitudes.reshape(-1, 1, 1)


def _on_cpu(lengths: Tensor, rope: str, pairs: int, fixed_point: bool) -> tuple[Tensor, Tensor]:
    if rope not in _ROPES:
        raise ValueError(
            f"rope must be one that this process has made, got none by the name {rope}; "
            f"create its RotaryEmbedding first"
        )
    return _compute(_ROPES[rope], lengths)


def _shapes(lengths: Tensor, rope: str, pairs: int, fixed_point: bool) -> tuple[Tensor, Tensor]:
    frequencies = lengths.new_empty(
        (lengths.shape[0], 1, pairs), dtype=torch.int64 if fixed_point else torch.float64
    )
    return frequencies, lengths.new_empty((lengths.shape[0], 1, 1), dtype=torch.float64)


LIBRARY.impl("at_lengths", _on_cpu, "CPU")
LIBRARY.impl("at_lengths", _shapes, "Meta")
