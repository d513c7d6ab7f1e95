"""Linear maps that train with torch's fastest kernel: float32 on a CPU with AVX-512 uses oneDNN.

With AVX2, oneDNN and MKL are equally fast, and oneDNN copies more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.model.linear import Linear, by_onednn, suits_onednn
from ropewalk.rotary.kernels.operator import is_transformed


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
        return by_onednn(x, weight, bias)
    return functional.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return by_onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        # Gradients of gradients are torch's own.
        multiply = functional.linear if torch.is_grad_enabled() else by_onednn
        return (
            multiply(gradient, weight.t()) if of_x else None,
            multiply(gradient.t(), x.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _serves(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    # Modes, traces and subclasses know torch's product, not this one.
    if torch.compiler.is_compiling() or is_transformed():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    return suits_onednn(x, weight, bias)
