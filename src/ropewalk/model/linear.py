"""Linear maps that use torch's fastest kernel for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

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


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


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
