"""The operator `ropewalk::rotate`: one call for q and k, and what compilers and autograd must know.

On a CPU the C kernel computes it, where it is installed, and on a GPU the Triton kernel, where
triton is; elsewhere, and where angles themselves need a gradient, a transform of torch.func is at
work or a compiler, the reference does, whose plain torch operations have every rule already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.rotary.kernels import cpu, gpu
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
    elif out is xs[0] and read == write and not out.is_neg():
        (_in_place if _at_once(xs) else torch.ops.ropewalk.rotate_)(xs, cos, sin, *layout)
        return xs
    else:
        found = (_to_new if _at_once(xs) else torch.ops.ropewalk.rotate)(xs, cos, sin, *layout)
    return found if out is None else [out.copy_(found[0])]


def rotated_at_once(
    xs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    first: int,
    layout: tuple[bool, bool, int, int, bool],
) -> Sequence[Tensor] | None:
    """`rotated` by rows first, first + 1, … of tables on the CPU, nothing checked, in one call.

    None where others must know of the call, or the kernel cannot do it: then `rotated` can.
    """
    if torch.compiler.is_compiling() or is_transformed() or not _at_once(xs):
        return None
    for x in xs:
        if not x.is_cpu or x.is_neg():
            return None
    return cpu.rotated_at_once(xs, cos, sin, first, layout)


def _kernel_serves(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    # A compiler fuses the formula as well, and knows what torch.func makes of it.
    if torch.compiler.is_compiling():
        return False
    if cos.ndim == 4:  # heads that differ in their angles have learned them
        return False
    on_cpu = cos.is_cpu and sin.is_cpu
    for x in xs:
        if not (x.is_cpu and cpu.serves(x) if on_cpu else gpu.serves(x, cos, sin)):
            return False
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        return False
    return not is_transformed()


def is_transformed() -> bool:
    """Whether a transform of torch.func or a forward derivative is at work."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return torch.autograd.forward_ad._current_level >= 0


def _at_once(xs: Sequence[Tensor]) -> bool:
    """Whether nobody but the kernel need know of the call, whose dispatch takes longer than it."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    grad = torch.is_grad_enabled()
    for x in xs:
        if (grad and x.requires_grad) or type(x) not in (Tensor, torch.nn.Parameter):
            return False
    return True


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """What the gradient needs: not q and k."""
    _, cos, sin, *ctx.layout = inputs
    ctx.save_for_backward(cos, sin)


def _gradient(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    """The adjoint of the rotation."""
    cos, sin = ctx.saved_tensors
    read, write, start, seq_dim, adjoint = ctx.layout
    pairs = PAIRINGS[read], PAIRINGS[write]
    back = rotated(gradients, cos, sin, *pairs, start, seq_dim, not adjoint)
    return (list(back), None, None, *[None] * len(ctx.layout))


def _to_new(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, *layout: Any) -> list[Tensor]:
    outs = [torch.empty_like(x) for x in xs]
    _into(xs, outs, cos, sin, *layout)
    return outs


def _in_place(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, *layout: Any) -> None:
    _into(xs, xs, cos, sin, *layout)
    # The kernel writes behind autograd's back: who kept x for a gradient must hear of it.
    torch.autograd.graph.increment_version([x for x in xs if not x.is_inference()])


def _into(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    read_interleaved: bool,
    write_interleaved: bool,
    start: int,
    seq_dim: int,
    adjoint: bool,
) -> None:
    if adjoint:
        read_interleaved, write_interleaved = write_interleaved, read_interleaved
    kernel = cpu if cos.is_cpu else gpu
    pairs = read_interleaved, write_interleaved
    kernel.rotate(xs, outs, cos, sin, *pairs, start, seq_dim, adjoint)


def _shapes(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


def _nothing(*_: Any) -> None:
    return None


for device in ("CPU", "CUDA"):  # AMD's GPUs are CUDA to torch
    LIBRARY.impl("rotate", _to_new, device)
    LIBRARY.impl("rotate_", _in_place, device)
LIBRARY.impl("rotate", _shapes, "Meta")
LIBRARY.impl("rotate_", _nothing, "Meta")
torch.library.register_autograd("ropewalk::rotate", _gradient, setup_context=_keep, lib=LIBRARY)
