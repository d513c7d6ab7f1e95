"""FIRE: a small network reads the distance as a share of how far a query could look."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from ropewalk.checks import check_amplitude, check_bool, check_int, check_number, shown
from ropewalk.encodings.bias import ScoreBias
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.encodings.relative import distances

MOST_HIDDEN = 4096


class FireSite(ScoreBias):
    """Add to the scores the H outputs of a network whose one input is a share in [0, 1]."""

    def __init__(self, heads: int, hidden: int, c: float, length: float) -> None:
        super().__init__()
        self.length = length
        self.c = nn.Parameter(torch.tensor(float(c)))
        self.stretch = nn.Parameter(torch.tensor(1.0))  # of length, so that both learn at one rate
        # Inputs are at least 0: a unit with negative weight and no offset would stay dead. So half
        # of the units start with each sign, and their kinks are spread over [0, 1].
        kinks = (torch.arange(hidden) + 0.5) / hidden
        sign = 1.0 - 2.0 * (torch.arange(hidden) % 2)
        self.weight, self.offset = nn.Parameter(sign), nn.Parameter(-sign * kinks)
        self.output = nn.Linear(hidden, heads, bias=False)  # softmax would cancel it

    def form(self, placement: Placement) -> Tensor:
        wide = torch.promote_types(self.c.dtype, torch.float32)
        share = self.share(placement, wide)
        kinks, lines = self.pieces(wide)
        # One look-up per pair, instead of the values of all hidden units.
        intercept, slope = embedding(torch.bucketize(share.detach(), kinks), lines).chunk(2, -1)
        return (intercept + slope * share.unsqueeze(-1)).movedim(-1, -3).contiguous()

    def pieces(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the network as straight lines between its kinks, which is what it is.

        The kinks are `(hidden,)`, in ascending order. The pieces before, between and after them are
        `(hidden + 1, 2 H)`: the intercepts, then the slopes, of every head.
        """
        weight, offset = self.weight.to(dtype), self.offset.to(dtype)
        output = self.output.weight.to(dtype)
        with torch.no_grad():
            # Outside [0, 1] it does not matter where a kink is, or whether there is one.
            kinks = (-offset / weight).nan_to_num(2.0).clamp(-1.0, 2.0).sort().values
            edges = torch.cat([kinks.new_tensor([-1.0]), kinks, kinks.new_tensor([2.0])])
            middle = (edges[1:] + edges[:-1]) / 2
            active = (middle[:, None] * weight + offset > 0).to(dtype)
        with torch.autocast(weight.device.type, enabled=False):
            lines = linear(torch.cat([active * offset, active * weight]), output)
        return kinks, torch.cat(lines.chunk(2), -1)

    def share(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Return psi(|i - j|) / psi(max(i, j, L)), in [0, 1]: `(S, T)` or `(B, S, T)`."""
        c, least = self.c.to(dtype).abs(), (self.stretch.to(dtype) * self.length).abs()
        queries, keys = placement.queries[..., :, None], placement.keys[..., None, :]
        reach = torch.maximum(torch.maximum(queries, keys).to(dtype), least)
        distance = distances(placement).abs().to(dtype)
        return torch.log1p(c * distance) / (torch.log1p(c * reach) + 1e-6)


class Fire(Encoding):
    """Add `f_h(psi(i - j) / psi(max(i, L)))` to the scaled scores, with `psi(x) = log(c x + 1)`.

    f is a network with one hidden ReLU layer and one output per head; f, c and L are learned. A
    distance is read as a fraction of the query's own position, or of L if the query is before L. So
    inputs stay in [0, 1] at any length.

    Acts on scores; relative up to L, but for later queries the same distance is a smaller fraction.
    Costs a look-up and a product per score in each layer, for any number of hidden units: a ReLU
    network of one input is piecewise linear, so the piece is looked up instead. It has `(H + 2)
    hidden + 2` parameters per layer, or once if layers are `shared` (the paper's FIRE-S). Accepts
    any position. Keys can be cached.

    The paper looks back only. A stack that looks both ways uses `|i - j|` and `max(i, j, L)`. For
    earlier keys, this is the paper's formula; for later keys, the input of f is also in [0, 1]. The
    bias is symmetric, so it cannot distinguish a sequence from its reverse.
    Source: Li et al. 2023, arXiv 2310.04418, section 3 and the code of its appendix, whose
    `hidden=32`, `c=0.1` and `length=512` (L) are the starting values here.
    """

    def __init__(
        self,
        shape: StackShape,
        hidden: int = 32,
        c: float = 0.1,
        length: float = 512,
        shared: bool = False,
    ) -> None:
        super().__init__()
        check_int("hidden", hidden, 1)
        if hidden > MOST_HIDDEN:
            raise ValueError(
                f"hidden must be at most {MOST_HIDDEN}, because memory grows with its square, got "
                f"{shown(hidden)}; the paper uses 32"
            )
        for name, value in (("c", c), ("length", length)):
            check_number(name, value)
            check_amplitude(name, value)  # so that float32 can represent their product
        check_bool("shared", shared)
        sites = 1 if shared else shape.layers
        self.sites = nn.ModuleList(FireSite(shape.heads, hidden, c, length) for _ in range(sites))

    def for_layer(self, layer: int) -> AttentionEncoding:
        site = self.sites[layer if len(self.sites) > 1 else 0]
        assert isinstance(site, FireSite)
        return site
