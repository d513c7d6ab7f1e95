"""Checks of the shapes and dtypes of q, k and their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.rotary.rotate import check_dense, sequence_length
from ropewalk.rotary.spec import RotarySpec

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_tensor(
    name: str,
    x: Tensor,
    positions_name: str,
    positions: Tensor | None,
    seq_dim: int,
    spec: RotarySpec,
) -> None:
    """Raise unless x has the width of this rope, and positions, if given, match its shape."""
    length = sequence_length(name, x, seq_dim)
    check_width(name, x, spec)
    if positions is None:
        return
    check_positions(positions_name, positions, spec)
    if x.is_nested and not positions.is_nested:
        x = tokens(x)
        length = x.shape[seq_dim]
    batch = x.shape[0] if x.ndim > -seq_dim else 1
    front = (spec.axis_count,) * (spec.axis_count > 1)
    batched = positions.ndim == len(front) + 2
    # Size by size: a compiler cannot prove that tuples of unknown sizes are equal.
    fits = positions.shape[-1] == length
    if batched and fits:
        fits = positions.shape[-2] == 1 or positions.shape[-2] == batch
    if not fits:
        raise ValueError(
            f"{positions_name} must be {(*front, length)} or {(*front, batch, length)} for {name} "
            f"of shape {tuple(x.shape)} with seq_dim={seq_dim}, got shape {tuple(positions.shape)}"
        )


def tokens(x: Tensor) -> Tensor:
    """Return x, or all tokens of a nested tensor as a batch of one sequence."""
    return x.values().unsqueeze(0) if x.is_nested else x


def check_width(name: str, x: Tensor, spec: RotarySpec) -> None:
    """Raise unless x's last axis is as wide as the spec's heads."""
    if x.shape[-1] != spec.head_dim:
        raise ValueError(
            f"{name}'s last axis must be head_dim={spec.head_dim}, got shape {tuple(x.shape)}"
        )


def check_positions(name: str, positions: Tensor, spec: RotarySpec) -> None:
    """Raise unless positions are integers (or coordinates) with as many axes as the spec has."""
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{name} must be an integer tensor, got {shown(positions)}; write torch.tensor(...)"
        )
    if positions.layout is not torch.jagged:
        check_dense(name, positions)
    if positions.dtype not in INTEGERS:
        if not (spec.continuous and positions.is_floating_point()):
            raise TypeError(
                f"{name} must have an integer dtype, got {positions.dtype}; "
                f"make them with torch.arange, or convert with .long()"
            )
        if positions.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64, got {positions.dtype}")
    axes = spec.axis_count
    several = axes > 1
    if positions.ndim not in ((2, 3) if several else (1, 2)):
        wanted = f"({axes}, S) or ({axes}, B, S)" if several else "(S,) or (B, S)"
        raise ValueError(f"{name} must be {wanted}, got shape {tuple(positions.shape)}")
    if several and positions.shape[0] != axes:
        raise ValueError(
            f"{name} must have a first axis of size {axes}, one row of positions for each axis, "
            f"got shape {tuple(positions.shape)}"
        )


def check_within_int64(name: str, value: object) -> None:
    """Raise if value is an int beyond 64 bits, which torch does not have."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must lie between -2^63 and 2^63 - 1, got {shown(value)}")


def check_has_numbers(name: str, values: Tensor, other: Tensor | None = None) -> None:
    """Raise if values are on the meta device, but their numbers are needed."""
    if values.device.type == "meta" and (other is None or other.device.type != "meta"):
        where = "" if other is None else f" next to a tensor on {other.device}"
        raise ValueError(
            f"{name} must have numbers, got a tensor on the meta device{where}, which has none"
        )


def check_offset(offset: object, length: int) -> None:
    """Raise unless `length` positions from this offset on are 64-bit integers."""
    if isinstance(offset, bool) or not isinstance(offset, (int, torch.SymInt)):
        raise TypeError(
            f"offset must be an int, got {shown(offset)}; "
            f"if it differs within the batch, pass positions"
        )
    if torch.compiler.is_compiling() or not isinstance(offset, int):
        return
    if not -(2**63) <= offset <= 2**63 - 1 - length:
        raise ValueError(
            f"offset must leave all {length} positions within ±2^63, got {shown(offset)}"
        )


def check_serves(
    length: object, spec: RotarySpec, end: int | None, positions: Tensor | None = None
) -> None:
    """Raise if length is less than the positions it serves, so that frequencies are wrong.

    end: one more than the last of contiguous positions; else `positions`. Does not check numbers
    that are on another device, or that a compiler or a transform does not know yet. Does not check
    lengths (B,): padded rows have more positions than tokens.
    """
    if not spec.needs_length or torch.compiler.is_compiling():
        return
    if type(length) is not int or length < 1:  # checked elsewhere
        return
    if positions is not None:
        # Coordinates do not count tokens.
        if spec.continuous or not positions.numel() or is_hidden(positions):
            return
        end = int(positions.max()) + 1
    # Up to the original length, frequencies are the same, and a smaller length is harmless.
    if type(end) is int and end > length and spec.length_key(end) != spec.length_key(length):
        raise ValueError(
            f"length must be at least {end}, to serve position {end - 1}, got {length}; it counts "
            f"all tokens of the sequence, cached ones too, not only the new ones"
        )


def is_hidden(x: Tensor) -> bool:
    """Return whether reading x's numbers would wait for a device, or is not possible."""
    plain = x.is_cpu and type(x) in (Tensor, torch.nn.Parameter)
    traced = torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state()
    return not plain or bool(traced) or torch._C._functorch.is_functorch_wrapped_tensor(x)


def check_same_batch(q: Tensor, k: Tensor) -> None:
    """Raise if both q and k have a batch axis, and attention cannot combine their sizes."""
    if q.ndim < 4 or k.ndim < 4 or q.shape[0] == k.shape[0]:
        return
    if q.shape[0] != 1 and k.shape[0] != 1:
        raise ValueError(
            f"k must have q's batch size, or one of both 1, got {k.shape[0]} for k of shape "
            f"{tuple(k.shape)} and {q.shape[0]} for q of shape {tuple(q.shape)}"
        )


def check_same_length(q: Tensor, k: Tensor, seq_dim: int) -> None:
    """Raise unless q and k have the same number of positions."""
    queries, keys = sequence_length("q", q, seq_dim), sequence_length("k", k, seq_dim)
    if queries != keys:
        raise ValueError(
            f"k must be as long as q unless it has positions of its own, "
            f"got {keys} keys and {queries} queries; pass positions and key_positions, or, for "
            f"(B, S, H, D), seq_dim=-3"
        )
