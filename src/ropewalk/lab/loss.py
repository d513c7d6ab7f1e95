"""Cross-entropy with label smoothing, directly from hidden states and the output table."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy

from ropewalk.lab.tokens import PAD
from ropewalk.model.linear import product


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients in chunks: no tensor (all tokens, vocabulary) is allocated."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, target: Tensor, smoothing: float, chunk: int
    ) -> Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)  # for sums
        weight = table.to(hidden.dtype)
        share = smoothing / table.shape[0]
        d_hidden, d_table = torch.empty_like(hidden), torch.zeros_like(table)
        loss = hidden.new_zeros((), dtype=wide)
        weight_sum = weight.to(wide).sum(0)
        for start in range(0, len(target), chunk):
            h, t = hidden[start : start + chunk], target[start : start + chunk, None]
            logits = product(h, weight)
            # -(1 - smoothing) log p(t) - smoothing/V Σ_w log p(w), where log p(w) = logits[w] -
            # normalizer, needs two numbers of a row in addition to logits[t].
            # The normalizer is that of the likeliest word: log p = logit - normalizer.
            gradient = torch.softmax(logits, -1)
            likeliest = gradient.amax(-1, keepdim=True).to(wide).log()
            normalizer = logits.amax(-1, keepdim=True).to(wide) - likeliest
            of_target = logits.gather(1, t).to(wide)
            of_all = h.to(wide) @ weight_sum  # sum of the row's logits, without a pass over them
            loss += (normalizer - (1 - smoothing) * of_target).sum() - share * of_all.sum()
            # d loss / d logits = p - (1 - smoothing) [w = t] - smoothing/V; the last term is the
            # same for all words, and is added after the two products.
            gradient.scatter_add_(1, t, gradient.new_full(t.shape, smoothing - 1))
            d_hidden[start : start + chunk] = product(
                gradient, weight.t(), (-share * weight_sum).to(h.dtype)
            )
            d_table += product(gradient.t(), h.t())
            d_table -= share * h.to(wide).sum(0)
        ctx.save_for_backward(d_hidden, d_table)
        return loss / len(target)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_hidden, d_table = ctx.saved_tensors
        scale = gradients[0] / len(d_hidden)
        return d_hidden * scale.to(d_hidden.dtype), d_table * scale, None, None, None


def linear_cross_entropy(
    hidden: Tensor, table: Tensor, target: Tensor, *, smoothing: float = 0.0, chunk: int = 512
) -> Tensor:
    """Return the mean label-smoothed cross-entropy of `softmax(hidden @ table.T)` against target.

    hidden `(N, width)`, table `(V, width)`, target `(N,)` ids. Equals
    `cross_entropy(linear(hidden, table), target, label_smoothing=smoothing)` (Szegedy et al.
    2016, arXiv 1512.00567, section 7), in less time and memory. Products run in hidden's dtype.
    """
    loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, table, target, smoothing, chunk
    )
    return loss


def token_loss(hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the mean loss over targets; padding is skipped before the output layer.

    hidden `(B, S, width)`, targets `(B, S)` with PAD where nothing is predicted. Products run in
    autocast's dtype if it is enabled.
    """
    real = targets != PAD
    hidden = hidden[real]
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return linear_cross_entropy(hidden, table, targets[real], smoothing=smoothing)


def row_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the summed negative log-likelihood `(B,)` of each row's targets (no PAD), in nats."""
    nll = cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="none"
    )
    return nll.view(targets.shape).sum(1)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return the autocast context for this precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
