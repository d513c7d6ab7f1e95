"""`rotate` turns the pairs of one tensor by the angles of given tables.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import check_bool, check_int, shown
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.reference import Layout
from ropewalk.rotary.spec import Pairing, check_pairing


def rotate(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    pairing: Pairing,
    write_pairing: Pairing | None = None,
    start: int = 0,
    seq_dim: int = -2,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Rotate every pair of x's dimensions by its angle (RoFormer, arXiv 2104.09864, eq. 13-15, 34).

    x: (B, H, S, D), or (B, S, H, D) with seq_dim=-3. B may be missing. There may be no axis of
        heads, or several such axes.
    cos, sin: float32 or float64, (S, R/2); (B, S, R/2) if each sequence of the batch has its own
        positions; (B, N, S, R/2) if heads have their own angles. In the last case x must have four
        axes, and N must divide H: each of the N sets of angles serves H/N consecutive heads, as key
        heads do in GQA. The tables' B may be 1: one table for the whole batch.
    pairing: which dimensions make a pair: `half` or `interleaved`, see `Pairing`.
    write_pairing: the pairing of the result, if it is not `pairing` (DeepSeek-V3 reads interleaved
        pairs and writes halves).
    start: the first dimension that rotates. Those outside [start, start + R) do not change.
    adjoint: apply the transpose, which the gradient needs. It negates the angles and swaps the
        pairings: x is in `write_pairing`, and the result is in `pairing`. If cos and sin contain a
        constant factor, as in YaRN, the transpose multiplies by it again, instead of dividing. So
        the transpose is the inverse only if cos² + sin² = 1.
    out: the tensor to write to, which may be x itself. Raises an error if a gradient is needed.

    Returns a tensor of x's shape and dtype. Arithmetic is in float32 (in float64 if x is float64),
    and the result is rounded once. An argument that does not fit raises ValueError or TypeError,
    which names the argument, the requirement and the value.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, rotate
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=2)).tables(torch.arange(3))
        >>> x = torch.tensor([[1.0, 0.0]] * 3)  # (S, D): one pair at positions 0, 1 and 2
        >>> rotate(x, cos, sin, pairing="half")
        tensor([[ 1.0000,  0.0000],
                [ 0.5403,  0.8415],
                [-0.4161,  0.9093]])
    """
    read, write = pairing, pairing if write_pairing is None else write_pairing
    for name, value in (("pairing", read), ("write_pairing", write)):
        check_pairing(name, value)
    check_tables(cos, sin, x, seq_dim)
    if type(adjoint) is not bool or type(start) is not int:
        check_bool("adjoint", adjoint)
        check_int("start", start, 0)
    rotary_dim = 2 * cos.shape[-1]
    rest = x.shape[-1] - start - rotary_dim
    if start < 0 or rest < 0:
        raise ValueError(
            f"dimensions from start to start + R must lie within x's last axis, of {x.shape[-1]} "
            f"dimensions, got start={start} and R={rotary_dim} (twice the last axis of cos)"
        )
    if out is not None:
        _check_out(out, x, cos, sin)

    layout = Layout.of(read, write, start, seq_dim, adjoint)
    (y,) = operator.dispatch((x,), cos, sin, layout, out=out)
    return y


def sequence_length(name: str, x: Tensor, seq_dim: int) -> int:
    """Return S of a tensor with its sequence on axis `seq_dim`; raise if it has no such axis."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if x.layout is not torch.jagged:
        check_dense(name, x)
    elsewhere = x.is_nested and x._ragged_idx != x.ndim + seq_dim  # type: ignore[attr-defined]
    if seq_dim not in (-2, -3) or elsewhere:
        raise ValueError(
            f"seq_dim must be -2, for {name} of (B, H, S, D), or -3, for (B, S, H, D), "
            f"got {shown(seq_dim)} for shape {tuple(x.shape)}"
        )
    if x.ndim < -seq_dim:
        raise ValueError(
            f"{name} must have at least {-seq_dim} axes if seq_dim={seq_dim}, "
            f"got shape {tuple(x.shape)}"
        )
    at = x.placements if operator.is_sharded(x) else ()  # type: ignore[attr-defined]
    if at and not all(p.is_replicate() or (p.is_shard() and p.dim < x.ndim - 1) for p in at):
        raise ValueError(
            f"{name} must be replicated, or sharded by batch, heads or sequence, got placements "
            f"{at}; call {name}.redistribute(placements=…) first"
        )
    return x.shape[seq_dim]


def check_dense(name: str, x: Tensor) -> None:
    """Raise if x is not a dense tensor; sparse, nested and MKL-DNN tensors are not dense.

    The older exporter of torch.onnx, which traces, is refused too: it would fix all positions.
    """
    if torch._C._get_tracing_state() and torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "torch.onnx.export must have dynamo=True to export a rotation, got dynamo=False"
        )
    if x.layout is not torch.strided or x.is_nested:
        kind = f"layout {x.layout}"
        if x.is_nested:
            kind = f"a nested one of {kind} (RotaryEmbedding takes torch.jagged)"
        raise TypeError(f"{name} must be a dense tensor, got {kind}; see torch.Tensor.to_dense")


def check_device(name: str, x: Tensor, other_name: str, other: Tensor) -> None:
    """Raise unless x is on the device of the other tensor."""
    if x.device != other.device:
        raise ValueError(
            f"{name} must be on the device of {other_name}, {other.device}, got {x.device}; "
            f"move one of them with .to()"
        )


def check_tables(cos: Tensor, sin: Tensor, x: Tensor, seq_dim: int) -> None:
    """Raise if x cannot be rotated, or if cos and sin are not tables for it."""
    length = sequence_length("x", x, seq_dim)
    for name, table in (("x", x), ("cos", cos), ("sin", sin)):
        if not isinstance(table, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(table).__name__}")
        check_dense(name, table)
        check_device(name, table, "x", x)
    if cos.shape != sin.shape or cos.ndim not in (2, 3, 4):
        raise ValueError(
            f"cos and sin must both be (S, R/2), both (B, N, S, R/2) or both (B, S, R/2), "
            f"got shapes {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} must be float32 or float64 whatever x is, got {table.dtype}; "
                f"RotaryEmbedding.tables makes such tables"
            )
    if cos.shape[-2] != length:
        raise ValueError(
            f"cos and sin must have a row for each position of x, {length} on axis {seq_dim} of "
            f"shape {tuple(x.shape)}, got {cos.shape[-2]} rows; x of (B, S, H, D) needs seq_dim=-3"
        )
    if cos.ndim == 4:
        _check_heads(cos, x, seq_dim)
    batch = x.shape[0] if x.ndim > -seq_dim else 1
    if cos.ndim > 2 and cos.shape[0] not in (1, batch):
        raise ValueError(
            f"cos and sin of (B, …, S, R/2) must have x's batch size or 1: x has {batch} for shape "
            f"{tuple(x.shape)} with seq_dim={seq_dim}, got shape {tuple(cos.shape)}"
        )
    if not x.is_floating_point():
        raise TypeError(f"x must have a floating point dtype, got {x.dtype}")


def _check_heads(cos: Tensor, x: Tensor, seq_dim: int) -> None:
    if x.ndim != 4:
        raise ValueError(
            f"x must be (B, H, S, D), or (B, S, H, D) with seq_dim=-3, if cos and sin are "
            f"(B, N, S, R/2), got shape {tuple(x.shape)}; unsqueeze the missing axis"
        )
    heads, angles = x.shape[1 if seq_dim == -2 else 2], cos.shape[1]
    if not angles or heads % angles:
        raise ValueError(
            f"cos and sin of (B, N, S, R/2) must have an N that divides x's heads, {heads} for "
            f"shape {tuple(x.shape)} with seq_dim={seq_dim}, got N={angles}; if they also rotate "
            f"fewer key heads (GQA), N must divide that number too"
        )


def _check_out(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {type(out).__name__}")
    check_dense("out", out)
    check_device("out", out, "x", x)
    sharded = operator.is_sharded(x)
    if (out.shape, out.dtype, operator.is_sharded(out)) != (x.shape, x.dtype, sharded):
        raise ValueError(
            f"out must have x's shape and dtype, {tuple(x.shape)} and {x.dtype}, and be a DTensor "
            f"if x is one, got {tuple(out.shape)} and {out.dtype} in a {type(out).__name__}"
        )
    if out._is_zerotensor():
        raise ValueError(
            "out must have memory to write to, got one of torch's internal ZeroTensors, which "
            "have none"
        )
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError("out must not be made in inference mode, got one that is; clone it")
    if _overlaps_itself(out):
        raise ValueError(
            f"out must have a memory cell for each of its elements, got strides {out.stride()} "
            f"for shape {tuple(out.shape)}; clone it first"
        )
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, cos, sin, out)):
        raise ValueError(
            "out must be None if a gradient is needed, got requires_grad=True; omit it, or call "
            "under torch.no_grad()"
        )


def _overlaps_itself(x: Tensor) -> bool:
    """Return whether elements may share memory.

    The reach of a group of axes is the sum of stride * (size - 1) over them. Sort the axes by
    stride. Elements may share memory if the stride of some axis is at most the reach of the axes
    before it.
    """
    reach = 0
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return x.numel() > 0
            reach += stride * (size - 1)
    return False
