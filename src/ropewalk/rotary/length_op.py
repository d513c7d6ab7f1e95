"""The operator `ropewalk::at_lengths`: frequencies at lengths that are known only at run time.

A rule that depends on the length computes its frequencies in decimal arithmetic, which no compiler
can trace. A graph has one call of this operator instead, and does not depend on the length.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields

import torch
from torch import Tensor

from ropewalk.rotary.spec import RotarySpec

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
