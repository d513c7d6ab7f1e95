"""The scores of a head as sums over rotary pairs, and the attention that follows from them.

Axes: H heads, K key heads, S tokens, C dimensions of q and k, P rotary pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.checks import check_int
from ropewalk.tools.usage.head_usage import Attending, Head, Rope, split_pairs
from ropewalk.tools.usage.usage_models import Attended

LEAST_TOKENS = 16  # for what distance explains: eight distances
MASKED = -1e4  # a mask adds the least number of its dtype, or -inf; float16's is -65,504
STEPS = 16  # of rounding that weights may be off, for scores of 1
NO_HEAD = Head(None, None, None, None, None)


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """The heads of one layer on one text.

    A score is the sum of the contributions of all pairs, of the form |q| |k| cos(angle), and of the
    dimensions that do not rotate. It includes the scale of the model.

    wavelengths: `(P)`, tokens per full turn, the slowest pair first; inf if it does not rotate.
    heads: what each head does, as `tools.usage` reports it; `position_share` says how much of the
        variance of its scores the distance alone explains. All None below 16 tokens.
    queries: the queries that `heads` are measured at.
    unsplit: why scores are not split, or None. They are then a single part, and if they are not
        q · k, they are known up to a constant for each query: the logarithms of the weights.
    q, k: `(H, S, C)` and `(K, S, C)`, float32: two dimensions for each pair, in the order of
        `wavelengths`, then those that do not rotate. q is times the scale.
    cap: scores become cap · tanh(score / cap), if not None.
    sinks: `(H)`, logits that take part in each softmax without a key, or None.
    visible: `(S, S)`, which keys each query sees.
    """

    layer: int
    layer_type: str | None
    wavelengths: tuple[float, ...]
    heads: tuple[Head, ...]
    queries: range
    unsplit: str | None
    q: Tensor
    k: Tensor
    cap: float | None
    sinks: Tensor | None
    visible: Tensor

    def contributions(self, head: int, query: int, key: int) -> Tensor:
        """Return the parts `(P + 1)` of one score, float64; the last one does not rotate.

        Their sum is the score, before a cap. Raises ValueError for a head or token that is not
        there.
        """
        q, k = self.vectors(head)
        _check("query", query, len(q))
        _check("key", key, len(q))
        parts = q[query].double() * k[key].double()
        pairs = 2 * len(self.wavelengths)
        return torch.cat([parts[:pairs].view(-1, 2).sum(-1), parts[pairs:].sum()[None]])

    def scores(self, head: int, *, without: range = range(0)) -> Tensor:
        """Return scores `(S, S)`, before a cap; -inf where a query does not see a key.

        without: pairs that are left out, counted from the slowest.
        """
        q, k = self.vectors(head)
        kept = torch.ones(q.shape[-1], dtype=torch.bool)
        for pair in without:
            _check("without", pair, len(self.wavelengths))
            kept[2 * pair : 2 * pair + 2] = False
        return (q[:, kept] @ k[:, kept].T).masked_fill(~self.visible, -torch.inf)

    def weights(self, head: int, *, without: range = range(0)) -> Tensor:
        """Return attention `(S, S)`: the softmax of `scores`. A query without keys has 0."""
        scores = self.scores(head, without=without)
        if self.sinks is not None:
            sink = self.sinks[head].expand(len(scores), 1)
            scores = torch.cat([scores, sink.to(scores.dtype)], -1)
        return scores.softmax(-1).nan_to_num(0.0)[:, : len(self.visible)]

    def by_distance(self, head: int, *, without: range = range(0)) -> tuple[Tensor, Tensor]:
        """Return distances `(N)`, query minus key, and the mean of `scores` at each, `(N)`."""
        scores, means = self.scores(head, without=without).double(), {}
        for distance in range(1 - len(scores), len(scores)):
            seen = scores.diagonal(-distance)[self.visible.diagonal(-distance)]
            if len(seen):
                means[distance] = float(seen.mean())
        return torch.tensor(list(means)), torch.tensor(list(means.values()), dtype=torch.float64)

    def vectors(self, head: int) -> tuple[Tensor, Tensor]:
        """Return q and k `(S, C)` of a head. Raises ValueError if there is no such head."""
        _check("head", head, len(self.q))
        return self.q[head], self.k[head * len(self.k) // len(self.q)]


def _check(name: str, place: int, count: int) -> None:
    check_int(name, place, 0)
    if place >= count:
        raise ValueError(f"{name} must be below {count}, got {place}")


@dataclass(frozen=True, eq=False)
class ModelAttention:
    """The attention of a model to one text, by layer. Layers without attention are left out.

    ids: `(S)`, the tokens. model: the name of its class.
    """

    model: str
    ids: Tensor
    layers: tuple[LayerAttention, ...]

    def positional(self) -> list[tuple[int, int]]:
        """Return (place in `layers`, head), the head first whose distance explains most."""
        shares = {
            (place, head): each.position_share or 0.0
            for place, layer in enumerate(self.layers)
            for head, each in enumerate(layer.heads)
        }
        return sorted(shares, key=lambda at: -shares[at])


def layer_of(
    layer: int, layer_type: str | None, rope: Rope | None, attended: Attended
) -> LayerAttention:
    """Return a layer's scores, split if they are those that its attention follows from."""
    q, k, weights = (
        x.detach()[0].float().cpu() for x in (attended.q, attended.k, attended.weights)
    )
    S = weights.shape[-1]
    unsplit = "the layer has no rope" if rope is None else None
    wavelengths: tuple[float, ...] = ()
    if rope is not None and q.shape[-1] != rope.spec.head_dim:
        unsplit = f"q has {q.shape[-1]} dimensions, and the rope is for {rope.spec.head_dim}"
    elif rope is not None:
        q, k = _by_pair(q, rope), _by_pair(k, rope)
        wavelengths = tuple(rope.wavelengths.flip(0).tolist())
    mask = attended.mask
    visible = torch.ones(S, S, dtype=torch.bool)
    if mask is not None:
        visible = (mask.detach().expand(1, len(q), S, S)[0, 0] > MASKED).cpu()
    sinks = None if attended.sinks is None else attended.sinks.detach().float().cpu()
    attending = Attending(S, causal=not bool(visible.triu(1).any()))
    heads, step = _heads(attending, weights), torch.finfo(attended.q.dtype).eps
    for own in dict.fromkeys((sinks, None)):  # a sink may act after the softmax
        parts = q * attended.scale, k, attended.cap, own, visible
        found = LayerAttention(
            layer, layer_type, wavelengths, heads, attending.queries, unsplit, *parts
        )
        if all(_explains(found, head, right, step) for head, right in enumerate(weights)):
            return found
    return _unsplit(found, weights)


def _explains(found: LayerAttention, head: int, weights: Tensor, step: float) -> bool:
    """Return whether a head's weights follow from its scores, up to rounding."""
    largest = max(1.0, float(found.scores(head)[found.visible].abs().max()))
    return float((found.weights(head) - weights).abs().max()) <= min(0.5, STEPS * step * largest)


def _unsplit(found: LayerAttention, weights: Tensor) -> LayerAttention:
    """Return a layer whose scores are the logarithms of its weights: one part, without pairs."""
    logs = weights.clamp_min(torch.finfo(torch.float32).tiny).log()
    single = torch.eye(weights.shape[-1])[None]
    why = "the model's attention does not follow from the products of its q and k alone"
    return replace(
        found, wavelengths=(), unsplit=why, q=logs, k=single, cap=None, sinks=None,
        visible=(weights > 0).any(0),
    )  # fmt: skip


def _by_pair(x: Tensor, rope: Rope) -> Tensor:
    """Return x `(H, S, C)` with its pairs first, the slowest one leading."""
    spec = rope.spec
    pairs = split_pairs(x, spec, spec.write_pairing)[:, :, rope.order.flip(0)]
    rest = x[..., : spec.start], x[..., spec.start + spec.rotary_dim :]
    return torch.cat([pairs.flatten(-2), *rest], -1)


def _heads(attending: Attending, weights: Tensor) -> tuple[Head, ...]:
    if weights.shape[-1] < LEAST_TOKENS:
        return (NO_HEAD,) * len(weights)
    attending.add(weights[None])
    return tuple(attending.heads())
