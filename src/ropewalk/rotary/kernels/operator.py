"""The operator `ropewalk::rotate`: one call for q and k, with rules for compilers and autograd.

The C kernel computes it on a CPU, the Triton kernel on a GPU. The reference, plain torch operations
that already have all rules, is used if the kernel is not installed or does not support a tensor, if
each head has its own angles, if angles need a gradient, under transforms of torch.func, and under a
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.rotary.kernels import cpu, gpu
from ropewalk.rotary.kernels.cpu import rows_are_contiguous
from ropewalk.rotary.reference import Layout, rotate_reference

PLAIN = frozenset((Tensor, torch.nn.Parameter))  # no subclass whose own code must see a call
LIBRARY = torch.library.Library("ropewalk", "DEF")
LAYOUT = "bool read_interleaved, bool write_interleaved, int start, int seq_dim, bool adjoint"
LIBRARY.define(f"rotate(Tensor[] xs, Tensor cos, Tensor sin, {LAYOUT}) -> Tensor[]")
LIBRARY.define(f"rotate_(Tensor(a!)[] xs, Tensor cos, Tensor sin, {LAYOUT}) -> ()")


def dispatch(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout, out: Tensor | None = None
) -> Sequence[Tensor]:
    """Rotate tensors with the same tables by the fastest code that serves them; check nothing.

    out: the tensor for the result of a single x; it may be x itself.
    """
    in_place = layout.read_interleaved == layout.write_interleaved
    results: Sequence[Tensor]
    if not _kernel_serves(xs, cos, sin):
        results = [rotate_reference(x, cos, sin, layout) for x in xs]
    elif out is xs[0] and in_place and not out.is_neg() and not _shares_memory(out, cos, sin):
        (_in_place if _kernel_suffices(xs) else torch.ops.ropewalk.rotate_)(xs, cos, sin, *layout)
        return xs
    elif _kernel_suffices(xs):
        results = _to_new(xs, cos, sin, *layout)
    elif are_plain(xs):
        results = _Rotation.apply(_to_new, layout, cos, sin, *xs)  # type: ignore[no-untyped-call]
    else:
        results = torch.ops.ropewalk.rotate(xs, cos, sin, *layout)
    return results if out is None else [out.copy_(results[0])]


def dispatch_rows(
    xs: Sequence[Tensor], cos: Tensor, sin: Tensor, first_row: int, layout: Layout
) -> Sequence[Tensor] | None:
    """Rotate by consecutive rows of tables on the CPU, from `first_row` on, in one call.

    Fast path; returns None, without side effects, when the checked path is needed.
    """
    if torch.compiler.is_compiling() or is_transformed() or not _kernel_suffices(xs):
        return None
    for x in xs:
        if not x.is_cpu or x.is_neg():
            return None
    return cpu.rotate_by_rows(xs, cos, sin, first_row, layout)


def _shares_memory(out: Tensor, *tables: Tensor) -> bool:
    """Return whether a write to `out` may change a table before the table is read."""
    is_alias_of = torch._C._is_alias_of  # type: ignore[attr-defined]
    return any(is_alias_of(out, table) for table in tables)


def _kernel_serves(xs: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    # A compiler fuses the plain formula, and can apply torch.func's transforms to it.
    if torch.compiler.is_compiling():
        return False
    if cos.ndim == 4:  # each head has its own angles: they are learned
        return False
    on_cpu = cos.is_cpu and sin.is_cpu
    for x in xs:
        if not (x.is_cpu and cpu.serves(x) if on_cpu else gpu.serves(x, cos, sin)):
            return False
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        return False
    return not is_transformed()


def is_transformed() -> bool:
    """Return whether a transform of torch.func or a forward derivative is active."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return torch.autograd.forward_ad._current_level >= 0


def _kernel_suffices(xs: Sequence[Tensor]) -> bool:
    """Return whether the kernel can be called directly, without autograd and subclasses."""
    if torch.is_grad_enabled():
        for x in xs:
            if x.requires_grad:
                return False
    return are_plain(xs)


def are_plain(xs: Sequence[Tensor]) -> bool:
    """Return whether autograd alone must see a call with xs: no mode, trace or subclass."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    return PLAIN.issuperset(map(type, xs))


class _Rotation(torch.autograd.Function):
    """The operator with its gradient; compute: what rotates.

    Without a mode, trace or subclass it is applied directly: torch's own call takes 0.2 ms longer.
    """

    @staticmethod
    def forward(
        ctx: Any, compute: Callable[..., Any], layout: Layout, cos: Tensor, sin: Tensor, *xs: Tensor
    ) -> Any:
        ctx.layout = layout
        ctx.save_for_backward(cos, sin)  # the tensors that the gradient needs, not q and k
        return tuple(compute(xs, cos, sin, *layout))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        adjoint = ctx.layout._replace(adjoint=not ctx.layout.adjoint)
        return (None, None, None, None, *dispatch(gradients, cos, sin, adjoint))


def _below_autograd(*arguments: Any) -> list[Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        return list(torch.ops.ropewalk.rotate(*arguments))


def _with_gradient(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, *layout: Any) -> list[Tensor]:
    return list(_Rotation.apply(_below_autograd, Layout(*layout), cos, sin, *xs))  # type: ignore[no-untyped-call]


def _to_new(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, *layout: Any) -> list[Tensor]:
    outs = [_new_like(x) for x in xs]
    _into(xs, outs, cos, sin, Layout(*layout))
    return outs


def _in_place(xs: Sequence[Tensor], cos: Tensor, sin: Tensor, *layout: Any) -> None:
    _into(xs, xs, cos, sin, Layout(*layout))
    # Autograd does not see the kernel's writes. Report them: x may be saved for a gradient.
    torch.autograd.graph.increment_version([x for x in xs if not x.is_inference()])


def _into(
    xs: Sequence[Tensor], outs: Sequence[Tensor], cos: Tensor, sin: Tensor, layout: Layout
) -> None:
    if layout.adjoint:  # kernels do not swap reading and writing themselves
        layout = layout._replace(
            read_interleaved=layout.write_interleaved, write_interleaved=layout.read_interleaved
        )
    (cpu if cos.is_cpu else gpu).rotate(xs, outs, cos, sin, layout)


def _new_like(x: Tensor) -> Tensor:
    """Return a new tensor like x, but with contiguous rows that do not overlap.

    (Rows of x may overlap, if x was expanded.)
    """
    out = torch.empty_like(x)
    if rows_are_contiguous(out):
        return out
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for device in ("CPU", "CUDA"):  # AMD's GPUs are CUDA to torch
    LIBRARY.impl("rotate", _to_new, device)
    LIBRARY.impl("rotate_", _in_place, device)
LIBRARY.impl("rotate", lambda xs, *_: [_new_like(x) for x in xs], "Meta")
LIBRARY.impl("rotate_", lambda *_: None, "Meta")
# As torch.library.register_autograd would, which takes 2 ms at import.
LIBRARY.impl("rotate", _with_gradient, "Autograd")
