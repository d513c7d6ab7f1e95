"""The passes of `usage` through a model: one for norms and heads, one for each p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.tools.usage.cost import interval, token_losses
from ropewalk.tools.usage.facts import Cost, Head, Layer, Norms
from ropewalk.tools.usage.heads import Attending
from ropewalk.tools.usage.own import OwnModel, Role
from ropewalk.tools.usage.pairs import Rope, pair_squares, without_rotation
from ropewalk.tools.usage.theirs import TransformersModel

MOST_NUMBERS = 2**26  # of attention or logits that are in memory at a time

Model = OwnModel | TransformersModel


@dataclass
class _Sums:
    """Squared norms of a layer's pairs `(heads, R/2)`, summed over tokens."""

    q: Tensor | None = None
    k: Tensor | None = None
    tokens: int = 0

    def add(self, role: Role, squares: Tensor) -> None:
        """Add squared norms `(B, heads, S, R/2)`."""
        total = squares.sum((0, 2)).cpu()
        if role == "q":
            self.q = total if self.q is None else self.q + total
            self.tokens += squares.shape[0] * squares.shape[2]
        else:
            self.k = total if self.k is None else self.k + total


def measure_layers(
    subject: Model, tokens: Tensor, causal: bool, unmeasured: list[str]
) -> tuple[Layer, ...]:
    """Return norms and heads of each layer with a rope, from one pass."""
    sums = {at: _Sums() for at, rope in enumerate(subject.ropes) if rope is not None}
    attending: dict[int, Attending] = {}

    def record(layer: int, role: Role, before: Tensor, after: Tensor) -> Tensor:
        rope = subject.ropes[layer]
        if rope is None:
            raise ValueError(f"model must not rotate in layer {layer}, which is without a rope")
        sums[layer].add(role, pair_squares(before, rope.spec))
        return after

    length = tokens.shape[1]
    for batch in tokens.split(_batch(subject, length, attention=True)):
        with subject.visiting(record):
            maps = subject.maps(batch)
        for layer in sums:
            found = maps[layer]
            if found is not None:
                attending.setdefault(layer, Attending(length, causal)).add(found)
    missing = [layer for layer, each in sums.items() if each.q is None]
    if missing:
        raise ValueError(
            f"model must rotate its queries in layer {missing[0]} by a function with a name such "
            f"as apply_rotary_pos_emb, got none in {type(subject.model).__name__}"
        )
    if len(attending) < len(sums):
        unmeasured.append("the heads: the model does not return attention probabilities")
    return tuple(_layer(subject, layer, sums[layer], attending.get(layer)) for layer in sums)


def _layer(subject: Model, at: int, sums: _Sums, attending: Attending | None) -> Layer:
    rope = subject.ropes[at]
    assert rope is not None
    assert sums.q is not None
    _check_finite(subject, sums.q.isfinite(), f"the queries of layer {at}")
    q = _norms(sums.q, sums.tokens, rope)
    k = None
    if sums.k is not None:
        _check_finite(subject, sums.k.isfinite(), f"the keys of layer {at}")
        k = _norms(sums.k, sums.tokens, rope)
    products = torch.zeros(0, 0)
    if k is not None and len(q) % len(k) == 0:
        products = q * k.repeat_interleave(len(q) // len(k), 0)
    heads = [Head(None, None, None, None, None)] * len(q)
    if attending is not None:
        heads = attending.heads()
    return Layer(
        at, subject.layer_types[at], tuple(rope.wavelengths.tolist()), _plain(q),
        () if k is None else _plain(k), _plain(products), tuple(heads),
    )  # fmt: skip


def check_output(subject: Model, tokens: Tensor) -> None:
    """Raise ValueError if outputs for a row of tokens are NaN, which makes comparisons false."""
    _check_finite(subject, ~subject.output(tokens[:1]).isnan(), "its output")


def _check_finite(subject: Model, finite: Tensor, where: str) -> None:
    if bool(finite.all()):
        return
    half = next(subject.model.parameters()).dtype == torch.float16
    way = "; float16 overflows early: use bfloat16 or float32" if half else ""
    raise ValueError(f"model must compute finite numbers, got NaN or infinity in {where}{way}")


def _norms(squares: Tensor, tokens: int, rope: Rope) -> Tensor:
    return (squares / tokens).sqrt()[:, rope.order] * rope.amplitude


def _plain(norms: Tensor) -> Norms:
    return tuple(tuple(row) for row in norms.tolist())


def measure_costs(
    subject: Model, tokens: Tensor, targets: Tensor, fractions: Sequence[float]
) -> tuple[tuple[Cost, ...], int]:
    """Return the loss for each fraction, the first of which is 1, and how many tokens it is of.

    targets: `(B, S)`, what the model predicts; negative if nothing.
    """
    found: list[Cost] = []
    whole: Tensor | None = None
    for fraction in fractions:
        losses = _losses(subject, tokens, targets, fraction)
        _check_finite(subject, losses.isfinite() | (targets < 0).cpu(), "its loss")
        whole = losses if whole is None else whole
        difference = losses - whole
        low, high = interval(difference)
        rotating = tuple(rope.rotating(fraction) for rope in subject.ropes if rope is not None)
        loss, change = (float(each[~each.isnan()].mean()) for each in (losses, difference))
        found.append(Cost(fraction, rotating, loss, change, low, high))
    assert whole is not None
    return tuple(found), int((~whole.isnan()).sum())


def _losses(subject: Model, tokens: Tensor, targets: Tensor, fraction: float) -> Tensor:
    """Return the loss of each target `(B, S)`, if only a share of the pairs rotates."""
    stopped = [None if rope is None else rope.stopped(fraction) for rope in subject.ropes]

    def stop(layer: int, role: Role, before: Tensor, after: Tensor) -> Tensor:
        rope, pairs = subject.ropes[layer], stopped[layer]
        if rope is None or pairs is None:
            return after
        return without_rotation(before, after, rope, pairs)

    losses = []
    size = _batch(subject, tokens.shape[1], attention=False)
    for batch, wanted in zip(tokens.split(size), targets.split(size), strict=True):
        with subject.visiting(stop):
            logits = subject.logits(batch)
        losses.append(token_losses(logits, wanted))
    return torch.cat(losses)


def _batch(subject: Model, length: int, *, attention: bool) -> int:
    """Return how many rows run at a time."""
    return max(1, MOST_NUMBERS // numbers_of(subject, length, attention=attention))


def numbers_of(subject: Model, length: int, *, attention: bool) -> int:
    """Return how many numbers the outputs of a row have."""
    maps = len(subject.ropes) * subject.heads * length**2 if attention else 0
    return length * subject.vocabulary + maps
