"""FIRE: a small network reads the distance, as a share of how far a query could look."""

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
    """Add to the scores what a network of one input and H outputs makes of a share in [0, 1]."""

    def __init__(self, heads: int, hidden: int, c: float, length: float) -> None:
        super().__init__()
        self.length = length
        self.c = nn.Parameter(torch.tensor(float(c)))
        self.stretch = nn.Parameter(torch.tensor(1.0))  # of length, so that both learn alike
        # Inputs are at least 0: a unit of negative weight and no offset would be dead for good. So
        # half of the units start with each sign, and all with their kinks spread over [0, 1].
        kinks = (torch.arange(hidden) + 0.5) / hidden
        sign = 1.0 - 2.0 * (torch.arange(hidden) % 2)
        self.weight, self.offset = nn.Parameter(sign), nn.Parameter(-sign * kinks)
        self.output = nn.Linear(hidden, heads, bias=False)  # softmax would not see one

    def form(self, placement: Placement) -> Tensor:
        wide = torch.promote_types(self.c.dtype, torch.float32)
        share = self.share(placement, wide)
        kinks, lines = self.pieces(wide)
        # One look-up for each pair, instead of the numbers of all hidden units.
        intercept, slope = embedding(torch.bucketize(share.detach(), kinks), lines).chunk(2, -1)
        return (intercept + slope * share.unsqueeze(-1)).movedim(-1, -3).contiguous()

    def pieces(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Give the network as what it is: straight lines between its kinks.

        The kinks in ascending order, ``(hidden,)``, and of the pieces before, between and behind
        them the intercepts and then the slopes of every head: ``(hidden + 1, 2 H)``.
        """
        weight, offset = self.weight.to(dtype), self.offset.to(dtype)
        output = self.output.weight.to(dtype)
        with torch.no_grad():
            # Outside of the shares it does not matter where a kink is, or whether there is one.
            kinks = (-offset / weight).nan_to_num(2.0).clamp(-1.0, 2.0).sort().values
            edges = torch.cat([kinks.new_tensor([-1.0]), kinks, kinks.new_tensor([2.0])])
            middle = (edges[1:] + edges[:-1]) / 2
            active = (middle[:, None] * weight + offset > 0).to(dtype)
        with torch.autocast(weight.device.type, enabled=False):
            lines = linear(torch.cat([active * offset, active * weight]), output)
        return kinks, torch.cat(lines.chunk(2), -1)

    def share(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Give psi(|i - j|) / psi(max(i, j, L)), in [0, 1]: ``(S, T)`` or ``(B, S, T)``."""
        c, least = self.c.to(dtype).abs(), (self.stretch.to(dtype) * self.length).abs()
        queries, keys = placement.queries[..., :, None], placement.keys[..., None, :]
        reach = torch.maximum(torch.maximum(queries, keys).to(dtype), least)
        distance = distances(placement).abs().to(dtype)
        return torch.log1p(c * distance) / (torch.log1p(c * reach) + 1e-6)


class Fire(Encoding):
    """Add ``f_h(psi(i - j) / psi(max(i, L)))`` to the scaled scores, ``psi(x) = log(c x + 1)``.

    f is a network of one hidden layer, ReLU, that gives all heads their numbers; f, c and L are
    learned. Distances are read as shares of the query's own position, or of L where it stands
    before L, so that inputs stay in [0, 1] at any length. Acts on scores; relative up to L, but at
    farther queries the same distance is a lesser share; ``(H + 2) hidden + 2`` parameters a layer,
    or once where layers are ``shared`` (the paper's FIRE-S); any position; costs a look-up and a
    product a score in each layer, however many units there are, since a network of one input is
    straight lines between its kinks; keys can be cached.

    The paper looks back only. A stack that looks both ways has ``|i - j|`` and ``max(i, j, L)``:
    the same where j <= i, still in [0, 1], and even, so that it cannot tell a sequence from its
    reverse.
    Source: Li et al. 2023, arXiv 2310.04418, section 3 and the code of its appendix, with its
    ``hidden=32``, ``c=0.1`` and ``length=512`` (L) to start from.
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
                f"hidden must be at most {MOST_HIDDEN}, since each pass forms its square, got "
                f"{shown(hidden)}; the paper has 32"
            )
        for name, value in (("c", c), ("length", length)):
            check_number(name, value)
            check_amplitude(name, value)  # float32 holds their product
        check_bool("shared", shared)
        sites = 1 if shared else shape.layers
        self.sites = nn.ModuleList(FireSite(shape.heads, hidden, c, length) for _ in range(sites))

    def for_layer(self, layer: int) -> AttentionEncoding:
        site = self.sites[layer if len(self.sites) > 1 else 0]
        assert isinstance(site, FireSite)
        return site
