"""Linear maps that train with torch's fastest kernel: float32 on a CPU with AVX-512 uses oneDNN.

Otherwise torch uses MKL, whose products take twice as long on an AMD processor with AVX-512. With
AVX2 both are equally fast, and oneDNN copies more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.model.linear import Linear
from ropewalk.rotary.kernels.operator import is_transformed

#: With fewer multiplications, the call of oneDNN costs more than it saves.
FEWEST = 2**21

_IS_FASTER = (
    torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    and torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


class TrainedLinear(Linear):
    """torch's linear layer; in training, oneDNN multiplies, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and _serves(x, self.weight, self.bias):
            # Rows only: a Function must not return a view, which nothing could change in place.
            rows = _Linear.apply(x.flatten(0, -2), self.weight, self.bias)  # type: ignore[no-untyped-call]
            out: Tensor = rows.view(*x.shape[:-1], len(self.weight))
            return out
        return super().forward(x)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `functional.linear(x, weight, bias)` for use where autograd records nothing."""
    if _serves(x, weight, bias):
        return _by_onednn(x, weight, bias)
    return functional.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        # Gradients of gradients are torch's own.
        multiply = functional.linear if torch.is_grad_enabled() else _by_onednn
        return (
            multiply(gradient, weight.t()) if of_x else None,
            multiply(gradient.t(), x.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def _serves(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.compiler.is_compiling() or not _IS_FASTER or is_transformed():
        return False
    if torch.is_autocast_enabled("cpu") or x.numel() * weight.shape[0] < FEWEST:
        return False
    # Modes, traces and subclasses know torch's product, not this one.
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    for each in (x, weight) if bias is None else (x, weight, bias):
        plain = type(each) in (Tensor, nn.Parameter)
        if not (plain and each.is_cpu and each.dtype == torch.float32):
            return False
    # oneDNN assumes a contiguous bias; for shapes that do not fit, torch raises the error.
    fits = bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous())
    return fits and weight.ndim == 2 and x.ndim > 1 and x.shape[-1] == weight.shape[1]
