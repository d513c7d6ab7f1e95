"""What `usage` reports, and how it is read from pairs of dimensions and from attention.

Axes: B batch, H heads, S tokens, N distances, D head_dim, R rotary_dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ropewalk.rotary.pairing import Pairing
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.rope_facts import Plain

Kind = Literal["position", "content"]

#: A head is position-like from here on, by the share of its scores' variance or by its attention.
POSITION = 0.5
#: A head is content-like up to this share.
CONTENT = 0.1

Norms = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Head:
    """How one query head attends.

    Measured for the queries in the second half of each row and the keys at the nearest S/2
    distances, the query itself included (in a model that also looks ahead: the middle half, and S/4
    distances to each side).

    position_share: the share of the variance of the scores, within each query, that the distance
        alone explains (R²): 1 if scores depend on the distance only. None if attention is not
        known, or if the scores hardly vary.
    distance: the distance with the most attention, mean over queries; 1 is the previous token.
    at_distance: the mean attention there.
    at_first: the mean attention to the first token of the row.
    kind: "position" if `position_share` or `at_distance` is at least 0.5. "content" if
        `position_share` is at most 0.1 and neither `at_distance` nor `at_first` reaches 0.5: what
        is left is content, or content and distance together. None for all other heads.
    """

    position_share: float | None
    distance: int | None
    at_distance: float | None
    at_first: float | None
    kind: Kind | None


@dataclass(frozen=True)
class Layer:
    """The pairs and heads of one layer with a rope. Pairs are ordered from fastest to slowest.

    wavelengths: positions per full turn, `(R/2)`; inf if a pair does not rotate.
    q_norms: `(H, R/2)`, the root mean square norm of each pair over all tokens, times the rope's
        amplitude, as it enters the scores.
    k_norms: the same for key heads, `(K, R/2)`; empty if the layer uses the keys of another one.
    products: `(H, R/2)`, the norm of q times that of its k: a pair cannot change a score, before
        its scale, by more (Cauchy-Schwarz) if all tokens have these norms.
    """

    layer: int
    layer_type: str | None
    wavelengths: tuple[float, ...]
    q_norms: Norms
    k_norms: Norms
    products: Norms
    heads: tuple[Head, ...]


@dataclass(frozen=True)
class Cost:
    """The loss if only the fastest pairs rotate, in all layers: p-RoPE without training.

    fraction: p, the share of pairs that rotate. rotating: how many do, by layer. loss: nats per
    token. difference: from the loss of the model as it is; low, high: its 95 % interval, by a
    bootstrap over blocks of tokens.
    """

    fraction: float
    rotating: tuple[int, ...]
    loss: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Usage(Plain):
    """Which frequencies a model's heads use, on one text.

    rows, length: windows of the text, and the tokens of each. losses: how many predicted tokens the
    loss is the mean of. unmeasured: what was not measured, with the reason.
    """

    model: str
    rows: int
    length: int
    losses: int
    layers: tuple[Layer, ...]
    costs: tuple[Cost, ...]
    unmeasured: tuple[str, ...]

    def named(self, kind: Kind) -> tuple[tuple[int, int], ...]:
        """Return the heads of a kind, as (layer, head)."""
        return tuple(
            (layer.layer, place)
            for layer in self.layers
            for place, head in enumerate(layer.heads)
            if head.kind == kind
        )


LEAST_VARIANCE = 1e-4  # of scores, below which nothing is explained: they differ by about 0.01


class Attending:
    """Sums over the attention of one layer, row by row; `heads` returns what they say.

    Only queries that have a key at each distance count, so that each distance has as many scores
    as any other. Then the variance within queries that distance explains is that of the means by
    distance.
    """

    def __init__(self, length: int, causal: bool) -> None:
        S = length
        self.distances = torch.arange(0, S // 2) if causal else torch.arange(-(S // 4), S // 4 + 1)
        self.queries = range(S // 2, S) if causal else range(S // 4, S - S // 4)
        self._seen: Tensor | None = None  # distances that are not masked
        self._scores = self._squares = self._mass = self._first = torch.zeros(())
        self._count = 0

    def add(self, probabilities: Tensor) -> None:
        """Add the attention of some rows, `(B, H, S, S)`."""
        queries = torch.tensor(self.queries)
        p = probabilities.detach().cpu()[:, :, queries]
        keys = queries[:, None] - self.distances
        near = p.gather(-1, keys.expand(*p.shape[:2], *keys.shape)).double()  # (B, H, queries, N)
        if self._seen is None:
            self._seen = near.amax((0, 1, 2)) > 0  # a window of attention ends somewhere
        # The logarithm is the score, up to a constant of the query, which centering removes. In
        # float16, `tiny` is not below many probabilities.
        smallest = torch.finfo(p.dtype).tiny * torch.finfo(p.dtype).eps
        scores = near[..., self._seen].clamp_min(smallest).log()
        scores = scores - scores.mean(-1, keepdim=True)
        self._scores = self._scores + scores.sum((0, 2))
        self._squares = self._squares + scores.square().sum((0, 2)).sum(-1)
        self._mass = self._mass + near.sum((0, 2))
        self._first = self._first + p[..., 0].double().sum((0, 2))
        self._count += p.shape[0] * p.shape[2]

    def heads(self) -> list[Head]:
        """Return what each head does."""
        explained = self._scores.square().sum(-1) / self._count
        variance = self._squares / max(1, self._count * self._scores.shape[-1])
        shares = explained / self._squares
        mass, first = self._mass / self._count, (self._first / self._count).tolist()
        most = mass.argmax(-1)
        heads = []
        for head, distance in enumerate(self.distances[most].tolist()):
            share = float(shares[head]) if float(variance[head]) > LEAST_VARIANCE else None
            there = float(mass[head, most[head]])
            kind = kind_of(share, there, first[head])
            heads.append(Head(share, distance, there, first[head], kind))
        return heads


def kind_of(share: float | None, at_distance: float, at_first: float) -> Kind | None:
    """Return the name of a head, or None if it is neither clearly; `Head` has the rule."""
    if at_distance >= POSITION or (share is not None and share >= POSITION):
        return "position"
    if share is not None and share <= CONTENT and at_first < POSITION:
        return "content"
    return None


@dataclass(frozen=True)
class Rope:
    """The rope of one layer, at a length, which counts only if its frequencies depend on it."""

    spec: RotarySpec
    length: int | None = None

    @property
    def order(self) -> Tensor:
        """The indices `(R/2)` of the pairs, from the fastest to the slowest."""
        frequencies = self.spec.inverse_frequencies(self.length).abs()
        return frequencies.argsort(descending=True, stable=True)

    @property
    def wavelengths(self) -> Tensor:
        """Positions per full turn `(R/2)`, increasing; inf if a pair does not rotate."""
        return self.spec.wavelengths(self.length)[self.order]

    @property
    def amplitude(self) -> float:
        """The factor of cos and sin."""
        return self.spec.amplitude_at(self.length)

    def rotating(self, fraction: float) -> int:
        """Return how many pairs rotate under p-RoPE: int(p · R / 2), as `scaling.Proportional` has.

        They are fewer if the rope itself has pairs that do not rotate.
        """
        own = int((self.spec.inverse_frequencies(self.length) != 0).sum())
        return min(own, int(fraction * self.spec.rotary_dim // 2))

    def stopped(self, fraction: float) -> Tensor:
        """Return which pairs p-RoPE does not rotate, the slowest: a mask `(R/2)`.

        Source: Barbero et al. 2024, arXiv 2410.06205.
        """
        mask = torch.zeros(self.spec.pairs, dtype=torch.bool)
        mask[self.order[self.rotating(fraction) :]] = True
        return mask


def pair_squares(x: Tensor, spec: RotarySpec) -> Tensor:
    """Return the squared norm of each pair `(B, H, S, R/2)`, float64, of x before rotation.

    Pairs are in the order of the spec; the fastest comes first unless the spec has axes of its own
    (`Rope.order`).
    """
    x = x.cpu() if x.device.type == "mps" else x  # Apple's GPUs have no float64
    return split_pairs(x.double(), spec, spec.pairing).square().sum(-1)


def split_pairs(x: Tensor, spec: RotarySpec, pairing: Pairing) -> Tensor:
    """Return the pairs `(…, R/2, 2)` of x `(…, D)`, or of its rotary part alone `(…, R)`."""
    rotary = x.narrow(-1, _start(x, spec), spec.rotary_dim)
    blocks = rotary.split(spec.blocks or (spec.rotary_dim,), -1)
    if pairing == "half":
        return torch.cat([block.unflatten(-1, (2, -1)).mT for block in blocks], -2)
    return torch.cat([block.unflatten(-1, (-1, 2)) for block in blocks], -2)


def without_rotation(before: Tensor, after: Tensor, rope: Rope, stopped: Tensor) -> Tensor:
    """Return rotated vectors in which some pairs do not rotate, as if their frequency were 0.

    before, after: `(…, D)` or `(…, R)`, before and after rotation. stopped: `(R/2)`, boolean. Such
    a pair still has the amplitude, the factor of cos and sin.
    """
    if not bool(stopped.any()):
        return after
    spec = rope.spec
    still = split_pairs(before, spec, spec.pairing) * rope.amplitude
    rotated = split_pairs(after, spec, spec.write_pairing)
    mixed = torch.where(stopped.to(after.device)[:, None], still.to(after.dtype), rotated)
    sizes = [size // 2 for size in spec.blocks or (spec.rotary_dim,)]
    half = spec.write_pairing == "half"
    joined = [(pairs.mT if half else pairs).flatten(-2) for pairs in mixed.split(sizes, -2)]
    start = _start(after, spec)
    end = start + spec.rotary_dim
    return torch.cat([after[..., :start], *joined, after[..., end:]], -1)


def _start(x: Tensor, spec: RotarySpec) -> int:
    """Return the first rotary dimension of x, which may be the rotary part alone."""
    if x.shape[-1] == spec.head_dim:
        return spec.start
    if x.shape[-1] == spec.rotary_dim:
        return 0
    raise ValueError(
        f"q and k must have heads of {spec.head_dim} dimensions, or the {spec.rotary_dim} that "
        f"rotate, got {x.shape[-1]}"
    )
