"""The operator `ropewalk::rotate`: one call for q and k, and what compilers and autograd must know.

On a CPU the C kernel computes it, where it is installed; elsewhere, and where angles themselves
need a gradient or a transform of torch.func is at work, the reference does, whose plain torch
operations have every rule already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.rotary.kernels import cpu
from ropewalk.rotary.reference import turned
from ropewalk.rotary.spec import PAIRINGS, Pairing

LIBRARY = torch.library.Library("ropewalk", "DEF")
LAYOUT = "bool read_interleaved, bool write_interleaved, int start, int seq_dim, bool adjoint"
LIBRARY.define(f"rotate(Tensor[] xs, Tensor cos, Tensor sin, {LAYOUT}) -> Tensor[]")
LIBRARY.define(f"rotate_(Tensor(a!)[] xs, Tensor cos, Tensor sin, {LAYOUT}) -> ()")


def rotated(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    read: Pairing,
    write: Pairing,
    start: int,
    seq_dim: int,
    adjoint: bool,
    out: Tensor | None = None,
) -> Sequence[Tensor]:
    """What `rotate` gives, for tensors that turn by the same tables, once all has been checked."""
    layout = read == "interleaved", write == "interleaved", start, seq_dim, adjoint
    if not _kernel_serves(xs, cos, sin):
        found = [turned(x, cos, sin, read, write, start, seq_dim, adjoint) for x in xs]
    elif out is xs[0] and read == write and not _overlaps_itself(out):
        (_on_cpu_in_place if _at_once(xs) else torch.ops.ropewalk.rotate_)(xs, cos, sin, *layout)
        return xs
    else:
        found = (_on_cpu if _at_once(xs) else torch.ops.ropewalk.rotate)(xs, cos, sin, *layout)
    return found if out is None else [out.copy_(found[0])]


def _kernel_serves(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    if cos.ndim == 4 or not all(x.device.type == "cpu" and cpu.serves(x) for x in xs):
        return False  # heads that differ in their angles have learned them
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        return False
    if torch.compiler.is_compiling():
        return True
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return not transformed and torch.autograd.forward_ad._current_level < 0


def _overlaps_itself(x: Tensor) -> bool:
    """Whether rows of x are one row repeated, which no rotation in place could serve."""
    return any(stride == 0 < size - 1 for stride, size in zip(x.stride(), x.shape, strict=True))


def _at_once(xs: Sequence[Tensor]) -> bool:
    """Whether nobody but the kernel need know of the call, whose dispatch takes longer than it."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in xs):
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) for x in xs)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """What the gradient needs: not q and k."""
    _, cos, sin, *ctx.layout = inputs
    ctx.save_for_backward(cos, sin)


def _gradient(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    """The adjoint of the rotation."""
    cos, sin = ctx.saved_tensors
    read, write, *place, adjoint = ctx.layout
    back = rotated(gradients, cos, sin, PAIRINGS[read], PAIRINGS[write], *place, not adjoint)
    return (list(back), None, None, *[None] * len(ctx.layout))


def _on_cpu(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    read_interleaved: bool,
    write_interleaved: bool,
    start: int,
    seq_dim: int,
    adjoint: bool,
) -> list[Tensor]:
    if adjoint:
        read_interleaved, write_interleaved = write_interleaved, read_interleaved
    outs = [torch.empty_like(x) for x in xs]
    pairs = read_interleaved, write_interleaved
    cpu.rotate(xs, outs, cos, sin, *pairs, start, seq_dim, adjoint)
    return outs


def _on_cpu_in_place(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    read_interleaved: bool,
    write_interleaved: bool,
    start: int,
    seq_dim: int,
    adjoint: bool,
) -> None:
    cpu.rotate(xs, xs, cos, sin, read_interleaved, write_interleaved, start, seq_dim, adjoint)


def _shapes(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


def _nothing(*_: Any) -> None:
    return None


LIBRARY.impl("rotate", _on_cpu, "CPU")
LIBRARY.impl("rotate_", _on_cpu_in_place, "CPU")
LIBRARY.impl("rotate", _shapes, "Meta")
LIBRARY.impl("rotate_", _nothing, "Meta")
torch.library.register_autograd("ropewalk::rotate", _gradient, setup_context=_keep, lib=LIBRARY)
