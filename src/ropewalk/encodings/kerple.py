"""KERPLE: kernels of the distance; each head learns how steep they are."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.encodings.bias import ScoreBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import distances

#: Lower limit of both parameters, as in the authors' code.
LEAST = 1e-2


class KerpleSite(ScoreBias):
    """Subtract a kernel of `|i - j|` from the scores, with two parameters per head."""

    def __init__(self, heads: int, power: bool) -> None:
        super().__init__()
        self.power = power
        # The authors draw r1 from 0 to 2 and r2 from 0 to 1 at random (with power, from 0 to 1 and
        # 0 to 2). Here the heads' values are evenly spaced over these ranges, so no seed is needed.
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
    """Clamp x to the range from `LEAST` to `most`; gradients pass as if x were not clamped.

    With plain clamping, a parameter beyond a limit would have gradient 0 and stay there. The
    authors' code avoids this by writing the clamped values into the parameters at each step.
    """
    return x.clamp(LEAST, most).detach() + (x - x.detach())


class Kerple(Encoding):
    """Subtract a kernel of the distance from the scaled scores; each head learns its shape.

    `kind=log` is `r1 log(1 + r2 |i - j|)`. `kind=power` is `r1 |i - j|^r2`; ALiBi is the case
    `r2 = 1` with fixed r1. r1 and r2 are at least 0.01; with `kind=power`, r2 is at most 2.

    Acts on scores; relative. Costs one logarithm or power per score, once for all layers (in each
    layer if scores are computed block by block, as for long sequences); `2 H` parameters, shared by
    all layers of the stack. Accepts any position. Keys can be cached. Kernels are symmetric: a
    stack that looks both ways cannot distinguish a sequence from its reverse.
    Source: Chi et al. 2022, arXiv 2205.09921, the logarithmic and the power variant. As in
    `ParallelKerpleLog` and `ParallelKerplePower` of chijames/KERPLE, megatron/mpu/layers.py, r1 and
    r2 have these limits, and scores are scaled before the kernel is subtracted.
    """

    def __init__(self, shape: StackShape, kind: Literal["log", "power"] = "log") -> None:
        super().__init__()
        if kind not in ("log", "power"):
            raise ValueError(f"kind must be 'log' or 'power', got {shown(kind)}")
        self.shared = KerpleSite(shape.heads, kind == "power")

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared
