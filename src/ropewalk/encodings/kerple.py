"""KERPLE: kernels of the distance, their steepness learned by each head."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.encodings.bias import ScoreBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import distances

#: Both parameters stay above it, as the authors' code has it.
LEAST = 1e-2


class KerpleSite(ScoreBias):
    """Take a kernel of ``|i - j|`` off the scores, with two parameters of each head."""

    def __init__(self, heads: int, power: bool) -> None:
        super().__init__()
        self.power = power
        # The authors draw r1 and r2 from these ranges. Here heads part them evenly, as slopes do in
        # ALiBi, from seeing far to seeing near: a model's seed then need not reach in here.
        spread = (torch.arange(heads) + 0.5) / heads
        self.r1 = nn.Parameter(spread * (1 if power else 2))
        self.r2 = nn.Parameter(spread * (2 if power else 1))

    def form(self, placement: Placement) -> Tensor:
        wide = torch.promote_types(self.r1.dtype, torch.float32)
        distance = distances(placement).abs().unsqueeze(-3).to(wide)
        r1, r2 = (r.to(wide)[:, None, None] for r in (self.r1, self.r2))
        r1, r2 = held_within(r1), held_within(r2, 2.0 if self.power else None)
        return -r1 * (distance.pow(r2) if self.power else torch.log1p(r2 * distance))


def held_within(x: Tensor, most: float | None = None) -> Tensor:
    """Clamp x to ``LEAST`` and ``most``, and pass its gradient on as if it were not.

    The authors' code writes the clamped values into the parameters at each step, so that they come
    back from an edge as gradients say; plain clamping would leave them there for good.
    """
    return x.clamp(LEAST, most).detach() + (x - x.detach())


class Kerple(Encoding):
    """Take a kernel of the distance off the scaled scores, its shape learned by each head.

    ``kind=log``: ``r1 log(1 + r2 |i - j|)``; ``kind=power``: ``r1 |i - j|^r2``, of which ALiBi is
    the case ``r2 = 1``; r1 and r2 at least 0.01, a power at most 2. Acts on scores; relative;
    ``2 H`` parameters, shared by all layers of the stack; any position; costs one logarithm or
    power a score, once for all layers (in each, where a sequence is long); keys can be cached.
    Kernels are even: a stack that looks both ways cannot tell a sequence from its reverse.
    Source: Chi et al. 2022, arXiv 2205.09921, its logarithmic and its power variant; limits, and
    the place after scaling, as in ``ParallelKerpleLog`` and ``ParallelKerplePower`` of
    chijames/KERPLE, megatron/mpu/layers.py.
    """

    def __init__(self, shape: StackShape, kind: Literal["log", "power"] = "log") -> None:
        super().__init__()
        if kind not in ("log", "power"):
            raise ValueError(f"kind must be 'log' or 'power', got {shown(kind)}")
        self.shared = KerpleSite(shape.heads, kind == "power")

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
