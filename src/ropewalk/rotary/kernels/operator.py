"""The operator `ropewalk::rotate`: one call for q and k, with rules for compilers and autograd.

The C kernel computes it on a CPU, the Triton kernel on a GPU. The reference, plain torch operations
that already have all rules, is used if the kernel is not installed or does not support a tensor, if
each head has its own angles, if angles need a gradient, under transforms of torch.func, and under a
compiler. Of a DTensor, each process rotates its part, by the rows of the tables for that part.
"""

from __future__ import annotations

import math
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
    if any(map(is_sharded, (*xs, cos, sin))):
        results = [_rotate_part(x, cos, sin, layout) for x in xs]
    elif not _kernel_serves(xs, cos, sin):
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


def is_sharded(x: object) -> bool:
    """Return whether x is a DTensor; an import of the class takes long."""
    return type(x) not in PLAIN and hasattr(x, "device_mesh")


def whole(x: Any) -> Any:
    """Return the complete tensor of a DTensor, and anything else as it is."""
    return x.full_tensor() if is_sharded(x) else x


def _rotate_part(x: Any, cos: Any, sin: Any, layout: Layout) -> Tensor:
    """Rotate a DTensor by tables of the complete sequence and batch."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    cos, sin = whole(cos), whole(sin)
    if not is_sharded(x):  # another one is
        return dispatch((x,), cos, sin, layout)[0]
    if cos.ndim == 4:
        times = x.shape[-1 - layout.seq_dim] // cos.shape[1]
        cos, sin = cos.repeat_interleave(times, 1), sin.repeat_interleave(times, 1)
    mesh, everywhere = x.device_mesh, [Replicate()] * x.device_mesh.ndim
    tables = (DTensor.from_local(table, mesh, everywhere) for table in (cos, sin))
    if cos.ndim == 4 or cos.requires_grad or sin.requires_grad:
        cos, sin = tables
        return rotate_reference(x, cos, sin, layout)  # torch adds up the gradients of the tables
    axes: dict[Any, int] = {0: 0} if cos.ndim == 3 and len(cos) > 1 else {}
    axes[x.ndim + layout.seq_dim] = cos.ndim - 2
    cut = [axes.get(getattr(placement, "dim", None)) for placement in x.placements]
    own = [Replicate() if axis is None else Shard(axis) for axis in cut]
    if own != everywhere:
        cos, sin = (table.redistribute(placements=own).to_local() for table in tables)
    (y,) = dispatch((x.to_local(),), cos, sin, layout)
    order = list(range(y.ndim))
    if torch.compiler.is_compiling():  # strides may be symbols, which cannot be sorted
        y = y.contiguous()
    else:  # in memory, the axes of the complete tensor have the order of those of the part
        of_x, of_y = (sorted(order, key=t.stride, reverse=True) for t in (x, y))
        steps = [y.stride(axis) for axis in of_x if y.shape[axis] > 1]  # others can be anywhere
        order = of_x if steps == sorted(steps, reverse=True) else of_y
    sizes = [x.shape[axis] for axis in order]
    stride = tuple(math.prod(sizes[order.index(axis) + 1 :]) for axis in range(y.ndim))
    return DTensor.from_local(y, mesh, x.placements, shape=x.shape, stride=stride)


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
