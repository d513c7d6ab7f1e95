"""Convert tables from the formats of other code and back; rotate by ONNX's operator.

Tables of this package are cos and sin, float32 (…, S, R/2), one column for each pair, as `rotate`
takes them. Others have complex numbers (Meta), every column twice (transformers) or angles
(rotary-embedding-torch). Leading axes do not change. bfloat16 and float16 are widened to float32;
this does not restore the precision that they lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.rotary.rotate import check_tables
from ropewalk.rotary.spec import Pairing, check_pairing
from ropewalk.rotary.tables import Tables

__all__ = [
    "from_freqs",
    "from_freqs_cis",
    "from_transformers",
    "onnx_rotary_embedding",
    "to_freqs",
    "to_freqs_cis",
    "to_transformers",
]


def from_freqs_cis(freqs_cis: Tensor) -> Tables:
    """Convert Meta's `freqs_cis`, complex (…, S, R/2), cos + i·sin, to tables.

    Raises TypeError for real numbers. Some ports have (…, S, R/2, 2), which torch.view_as_complex
    converts. Source: meta-llama/llama, `precompute_freqs_cis`; its pairs are interleaved.

    Example:
        >>> import torch
        >>> from ropewalk import interop
        >>> freqs_cis = torch.polar(torch.ones(2, 1), torch.tensor([[0.0], [1.0]]))
        >>> cos, sin = interop.from_freqs_cis(freqs_cis)  # for rotate(…, pairing="interleaved")
        >>> cos
        tensor([[1.0000],
                [0.5403]])
    """
    if not freqs_cis.is_complex():
        raise TypeError(
            f"freqs_cis must be complex, got {freqs_cis.dtype} of shape {tuple(freqs_cis.shape)}; "
            f"if cos and sin are on a last axis of 2, pass torch.view_as_complex(freqs_cis)"
        )
    return _wide(freqs_cis.real), _wide(freqs_cis.imag)


def to_freqs_cis(cos: Tensor, sin: Tensor) -> Tensor:
    """Convert tables to Meta's `freqs_cis` (…, S, R/2): complex64, or complex128 from float64.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, interop
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=4)).tables(torch.arange(3))
        >>> interop.to_freqs_cis(cos, sin)[1]
        tensor([0.5403+0.8415j, 0.9999+0.0100j])
    """
    _check_same_shape(cos, sin)
    return torch.complex(_wide(cos), _wide(sin))


def from_transformers(cos: Tensor, sin: Tensor, *, pairing: Pairing) -> Tables:
    """Convert transformers' cos and sin (…, S, R), which have every column twice, to tables.

    pairing: which two columns belong to one pair. `half`: i and i + R/2, torch.cat((freqs, freqs),
    -1) (Llama and most). `interleaved`: 2i and 2i + 1, repeat_interleave(2) (GPT-J, Cohere). This
    is usually the pairing of the model, but GLM's tables are `half` and its pairs are interleaved.

    Raises ValueError if the two columns differ. Then `pairing` is wrong, or the model multiplies
    the two dimensions of a pair by different values (HunYuan-VL), which is not a rotation. Source:
    transformers, modeling_llama.py.

    Example:
        >>> import torch
        >>> from ropewalk import interop
        >>> angles = torch.tensor([[0.0, 0.0], [1.0, 0.01]])
        >>> theirs = torch.cat((angles, angles), -1)
        >>> cos, sin = interop.from_transformers(theirs.cos(), theirs.sin(), pairing="half")
        >>> cos.shape
        torch.Size([2, 2])
    """
    _check_same_shape(cos, sin)
    return _once("cos", cos, pairing), _once("sin", sin, pairing)


def to_transformers(cos: Tensor, sin: Tensor, *, pairing: Pairing) -> Tables:
    """Convert tables to transformers' cos and sin (…, S, R): see `from_transformers`.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, interop
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=4)).tables(torch.arange(3))
        >>> interop.to_transformers(cos, sin, pairing="half")[0][1]
        tensor([0.5403, 0.9999, 0.5403, 0.9999])
    """
    _check_same_shape(cos, sin)
    return _twice(cos, pairing), _twice(sin, pairing)


def from_freqs(freqs: Tensor) -> Tables:
    """Convert rotary-embedding-torch's `freqs` (…, S, R), angles, to tables.

    Columns 2i and 2i + 1 have the same angle. The `freqs` of x-transformers have the same format.
    Raises ValueError if the two angles of a pair differ.
    Source: lucidrains/rotary-embedding-torch, `RotaryEmbedding.forward`.

    Example:
        >>> import torch
        >>> from ropewalk import interop
        >>> cos, sin = interop.from_freqs(torch.tensor([[1.0, 1.0, 0.01, 0.01]]))
        >>> cos
        tensor([[0.5403, 0.9999]])
    """
    angles = _once("freqs", freqs, "interleaved").to(torch.float64)
    return angles.cos().to(torch.float32), angles.sin().to(torch.float32)


def to_freqs(cos: Tensor, sin: Tensor) -> Tensor:
    """Convert tables to rotary-embedding-torch's `freqs` (…, S, R): angles in [-π, π], twice each.

    These angles differ by full turns from those that rotary-embedding-torch computes, and rotate
    the same way. Raises ValueError for tables with an amplitude, which angles cannot express.

    Example:
        >>> import torch
        >>> from ropewalk import RotaryEmbedding, RotarySpec, interop
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=4)).tables(torch.arange(3))
        >>> interop.to_freqs(cos, sin)[1]
        tensor([1.0000, 1.0000, 0.0100, 0.0100])
    """
    _check_same_shape(cos, sin)
    cos, sin = _wide(cos), _wide(sin)
    squared = cos**2 + sin**2
    # Rounding to float32 changes cos² + sin² by less than 1e-5; an amplitude changes it by more.
    if squared.numel() and (worst := (squared - 1).abs().max().item()) > 1e-5:
        raise ValueError(
            f"cos and sin must have cos² + sin² = 1, since angles have no amplitude, got a "
            f"difference of {worst:.2g}; if the tables have an amplitude, divide them by it, and "
            f"multiply q and k by it; if the tables have 16 bits, pass float32 tables"
        )
    return _twice(torch.atan2(sin, cos), "interleaved")


def onnx_rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    pairing: Pairing,
    write_pairing: Pairing | None = None,
    start: int = 0,
    seq_dim: int = -2,
) -> Tensor:
    """Rotate as `rotate` does, by one node of ONNX's RotaryEmbedding (opset 23).

    To let the graph compute the tables too, export a module that takes positions and calls `tables`
    of ropewalk's own `RotaryEmbedding`. The graph then computes angles in integers, as ropewalk
    does. Therefore, far positions stay exact in onnxruntime.

    Arguments and result are those of `rotate`, with these restrictions: x has four axes and an even
    D, tables have no head axis, pairs are written as they were read, and `start` is 0. In ONNX, x
    and tables must have one dtype: both are converted to float32, and the result is rounded once.

    Raises ValueError or TypeError for what the operator cannot express. An export needs onnx and
    onnxscript; this function does not.
    Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from ropewalk import RotaryEmbedding, RotarySpec, interop
        >>> class Rotate(nn.Module):
        ...     def forward(self, q, cos, sin):
        ...         return interop.onnx_rotary_embedding(q, cos, sin, pairing="half")
        >>> cos, sin = RotaryEmbedding(RotarySpec(head_dim=64)).tables(torch.arange(16))
        >>> Rotate()(torch.randn(2, 8, 16, 64), cos, sin).shape
        torch.Size([2, 8, 16, 64])

        torch.onnx.export(Rotate(), (q, cos, sin), dynamo=True, opset_version=23) exports it.
    """
    check_pairing("pairing", pairing)
    if write_pairing not in (None, pairing):
        raise ValueError(
            f"write_pairing must be None or {pairing!r}, as ONNX writes pairs in the order of x, "
            f"got {shown(write_pairing)}; reorder the dimensions of the result, or use rotate"
        )
    if start != 0:
        raise ValueError(
            f"start must be 0, as ONNX rotates leading dimensions, got {start}; "
            f"pass x[..., start:], and concatenate x[..., :start] and the result"
        )
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"x must be float32, float16 or bfloat16 for ONNX, got {x.dtype}")
    check_tables(cos, sin, x, seq_dim)
    if x.ndim != 4 or cos.ndim == 4:
        raise ValueError(
            f"x must be (B, H, S, D), or (B, S, H, D) with seq_dim=-3, and cos (S, R/2) or "
            f"(B, S, R/2) for ONNX, got shapes {tuple(x.shape)} and {tuple(cos.shape)}; use rotate"
        )
    rotary_dim, head_dim = 2 * cos.shape[-1], x.shape[-1]
    if head_dim % 2 or rotary_dim > head_dim:
        raise ValueError(
            f"x's last axis must be even for ONNX, and at least R={rotary_dim} (twice the last "
            f"axis of cos), got {head_dim}"
        )
    from torch.onnx.ops import rotary_embedding  # takes 0.2 s

    heads_first = x if seq_dim == -2 else x.transpose(1, 2)
    # The operator does not broadcast the batch.
    cos, sin = (t.to(torch.float32).expand(x.shape[0], -1, -1) for t in (cos, sin))
    rotated = rotary_embedding(
        heads_first.to(torch.float32),
        cos,
        sin,
        interleaved=pairing == "interleaved",
        rotary_embedding_dim=0 if rotary_dim == head_dim else rotary_dim,
    ).to(x.dtype)
    return rotated if seq_dim == -2 else rotated.transpose(1, 2)


def _wide(table: Tensor) -> Tensor:
    return table.to(torch.promote_types(table.dtype, torch.float32))


def _once(name: str, table: Tensor, pairing: Pairing) -> Tensor:
    """Return the R/2 columns of a table that has each twice."""
    check_pairing("pairing", pairing)
    if table.ndim < 1 or table.shape[-1] % 2:
        raise ValueError(
            f"{name} must have an even last axis, each pair's value twice, "
            f"got shape {tuple(table.shape)}"
        )
    first, second = table.chunk(2, -1) if pairing == "half" else (table[..., ::2], table[..., 1::2])
    if not torch.equal(first, second):
        layouts = ("half", "i and i + R/2"), ("interleaved", "2i and 2i + 1")
        (_, columns), (other, other_columns) = layouts if pairing == "half" else layouts[::-1]
        raise ValueError(
            f"{name} must have the same value in columns {columns}, got some that differ by up to "
            f"{(first - second).abs().max().item():.2g}; the table may have the other layout "
            f"({other}), with the same value in columns {other_columns}"
        )
    return _wide(first).contiguous()


def _twice(table: Tensor, pairing: Pairing) -> Tensor:
    check_pairing("pairing", pairing)
    if pairing == "half":
        return torch.cat((table, table), dim=-1)
    return table.repeat_interleave(2, dim=-1)


def _check_same_shape(cos: Tensor, sin: Tensor) -> None:
    if cos.shape != sin.shape:
        raise ValueError(
            f"cos and sin must have one shape, got {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
