"""Linear maps that use torch's fastest kernel for them, in inference and in training.

For float32 on a CPU with AVX-512 that is oneDNN. With AVX2, oneDNN and MKL are equally fast, and
oneDNN copies more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.rotary.kernels.operator import is_transformed

#: With fewer multiplications, oneDNN's call costs more than it saves.
FEWEST = 2**21

#: The processor alone decides, not a timing: the same inputs give the same outputs in every run.
#: On an AMD processor with AVX-512, MKL, which is torch's choice, takes twice as long. Without
#: AVX-512, MKL is about as fast with many rows, and up to twice as fast with few.
ONEDNN_IS_FASTER = (
    torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply x `(…, I)` with weight `(O, I)` and add bias `(O,)`: `(…, O)`.

    Within `torch.inference_mode`, float32 on a CPU with AVX-512 uses oneDNN.
    """
    if torch.compiler.is_compiling():  # first: a compiler cannot trace what follows
        return functional.linear(x, weight, bias)
    if torch.is_inference_mode_enabled() and suits_onednn(x, weight, bias):
        return by_onednn(x, weight, bias)
    return functional.linear(x, weight, bias)


def suits_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether oneDNN can compute this product and takes less time than torch's choice."""
    if torch.compiler.is_compiling() or not ONEDNN_IS_FASTER:
        return False
    if torch.is_autocast_enabled("cpu") or x.numel() * weight.shape[0] < FEWEST:
        return False
    for each in (x, weight) if bias is None else (x, weight, bias):
        plain = type(each) in (Tensor, nn.Parameter)  # a quantized weight has its own product
        if not (plain and each.is_cpu and each.dtype == torch.float32):
            return False
    # oneDNN assumes a contiguous bias; for shapes that do not fit, torch raises the error.
    fits = bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous())
    return fits and weight.ndim == 2 and x.ndim > 1 and x.shape[-1] == weight.shape[1]


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `functional.linear(x, weight, bias)`, computed by oneDNN without autograd."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class TrainedLinear(nn.Linear):
    """torch's linear layer, computed by `linear`; in training, oneDNN multiplies in both passes."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and _serves(x, self.weight, self.bias):
            # Rows only: a Function must not return a view, which nothing could change in place.
            rows = _Linear.apply(x.flatten(0, -2), self.weight, self.bias)  # type: ignore[no-untyped-call]
            out: Tensor = rows.view(*x.shape[:-1], len(self.weight))
            return out
        return linear(x, self.weight, self.bias)


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
