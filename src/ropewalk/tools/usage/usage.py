"""`usage`: which frequencies the heads of a model use, on one text.

One pass through the model measures norms and heads, and one for each p its loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ropewalk.bootstrap import ratio_interval
from ropewalk.checks import check_number, shown
from ropewalk.machine import check_fits
from ropewalk.model import LanguageModel
from ropewalk.tools.live_model import preserved
from ropewalk.tools.usage.head_usage import (
    Attending,
    Cost,
    Head,
    Layer,
    Norms,
    Rope,
    Usage,
    pair_squares,
    without_rotation,
)
from ropewalk.tools.usage.usage_models import OwnModel, Role, TransformersModel, is_transformers

BLOCK = 32  # predicted tokens that are drawn together, because neighbors are alike
LEAST_BLOCKS = 10  # fewer give intervals that are too narrow
DRAWS = 2_000


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each target in nats, `(B, S)`, from logits `(B, S, V)`.

    A negative target is not predicted; its loss is NaN.
    """
    flat = targets.flatten()
    losses = cross_entropy(logits.flatten(0, 1).float(), flat.clamp(min=0), reduction="none")
    return losses.where(flat >= 0, torch.nan).cpu().double().view(targets.shape)


def blocks_of(rows: int, predicted: int) -> int:
    """Return how many blocks there are in rows of this many predicted tokens."""
    return rows * -(-predicted // BLOCK)


def least_rows(length: int) -> int:
    """Return how many rows of this many tokens an interval needs."""
    return -(-LEAST_BLOCKS // blocks_of(1, length - 1))


def interval(differences: Tensor) -> tuple[float, float]:
    """Return the 95 % interval of the mean of differences `(B, S)`, without those that are NaN.

    Blocks of up to 32 consecutive tokens of a row are resampled, the same for each call.
    """
    parts = differences.split(BLOCK, 1)
    sums = torch.cat([part.nansum(1) for part in parts])
    counts = torch.cat([(~part.isnan()).sum(1) for part in parts])
    sums, counts = sums[counts > 0], counts[counts > 0].double()
    return ratio_interval(sums, counts, DRAWS)


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


FRACTIONS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)
INTEGERS = (torch.int64, torch.int32)
LEAST_LENGTH = 16  # tokens of a row: eight distances


def usage(
    model: nn.Module,
    tokens: Tensor,
    *,
    targets: Tensor | None = None,
    fractions: Sequence[float] = FRACTIONS,
) -> Usage:
    """Return which frequencies a model's heads use on a text, and what p-RoPE would cost.

    Norms of q and k by layer, head and pair; heads that attend by position or by content; and the
    loss if the slowest pairs do not rotate, without any training. The question and p-RoPE are those
    of Barbero et al. 2024, arXiv 2410.06205; they train with p-RoPE.

    model: a `LanguageModel` with `rotary`, or a causal language model of transformers. It runs in
        eval mode, without gradients, and is afterwards as it was. No other model may run in another
        thread meanwhile.
    tokens: ids `(B, S)`, rows of S tokens of a text, or `(S,)`; each row starts at position 0.
    targets: ids `(B, S)` that the model predicts, negative where it predicts none, such as those of
        masked tokens. None: the next tokens, if the model looks back only.
    fractions: p, shares of the pairs that rotate. 1 is measured always: it is the model as it is.
        Values that rotate too (`rotary(values=True)`) continue to.

    Returns a frozen dataclass. `layers` has, for each layer with a rope, `wavelengths` (the fastest
    pair first), `q_norms`, `k_norms` and their `products` `(heads, R/2)`, and `heads`, each with
    the share of its scores that distance explains and its `kind`. `costs` has the loss for each p
    and its difference with a 95 % interval. `unmeasured` has what is missing and why. `to_dict()`
    returns plain data.

    Raises TypeError or ValueError if the model has no rope that can be measured or computes NaN, or
    if tokens do not fit the model or are too few for an interval: 10 blocks of 32 predicted tokens.

    Example:
        >>> import torch
        >>> from ropewalk import tools
        >>> from ropewalk.encodings import build
        >>> from ropewalk.model import LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=0, decoder_layers=2)
        >>> encoding = build("rotary", shape.stack_shape(causal=True))
        >>> model = LanguageModel(shape, encoding, causal=True)
        >>> found = tools.usage(model, torch.randint(100, (8, 64)), fractions=(0.5,))
        >>> len(found.layers), len(found.layers[0].q_norms), len(found.layers[0].wavelengths)
        (2, 4, 4)
        >>> [(cost.fraction, cost.rotating) for cost in found.costs]
        [(1.0, (4, 4)), (0.5, (2, 2))]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    tokens = _rows(tokens)
    fractions = _checked(fractions)
    rows, length = tokens.shape
    subject: Model
    if isinstance(model, LanguageModel):
        subject = OwnModel(model)
    elif is_transformers(model):
        subject = TransformersModel(model, length)
    else:
        raise TypeError(
            f"model must be a LanguageModel of ropewalk or a causal language model of "
            f"transformers, got {type(model).__name__}"
        )
    _check_ids("tokens", tokens, subject.vocabulary, least=0)
    if targets is not None:
        targets = _checked_targets(targets, tokens, subject.vocabulary)
    _check_memory(subject, length)
    tokens = tokens.to(subject.device)
    unmeasured: list[str] = []
    with preserved(model), torch.no_grad():
        model.eval()
        causal = subject.causal
        layers = measure_layers(subject, tokens, causal, unmeasured)
        check_output(subject, tokens)
        costs: tuple[Cost, ...] = ()
        losses = 0
        if targets is None and not causal:
            unmeasured.append("the loss: the model does not predict the next token")
        elif not subject.has_logits:
            unmeasured.append("the loss: the model returns no logits")
        else:
            wanted = _next(tokens) if targets is None else targets.to(subject.device)
            costs, losses = measure_costs(subject, tokens, wanted, fractions)
    name = type(model).__name__
    return Usage(name, rows, length, losses, layers, costs, tuple(unmeasured))


def _next(tokens: Tensor) -> Tensor:
    """Return the next token at each place, -1 at the last."""
    return torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -1)], 1)


def _checked_targets(targets: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
    if not isinstance(targets, Tensor) or targets.dtype not in INTEGERS:
        raise TypeError(f"targets must be a tensor of integer ids, got {shown(targets)}")
    rows = targets[None] if targets.ndim == 1 else targets
    if rows.shape != tokens.shape or not bool((rows >= 0).any()):
        raise ValueError(
            f"targets must have the shape {tuple(tokens.shape)} of tokens and an id of at least 0, "
            f"got {tuple(targets.shape)}"
        )
    _check_ids("targets", rows, vocabulary)
    return rows.long()


def _rows(tokens: Tensor) -> Tensor:
    if not isinstance(tokens, Tensor) or tokens.dtype not in INTEGERS:
        what = tokens.dtype if isinstance(tokens, Tensor) else shown(tokens)
        raise TypeError(f"tokens must be a tensor of integer ids (B, S), got {what}")
    rows = tokens[None] if tokens.ndim == 1 else tokens
    if rows.ndim != 2 or rows.shape[1] < LEAST_LENGTH:
        raise ValueError(
            f"tokens must be (B, S) with at least {LEAST_LENGTH} tokens in a row, got "
            f"{tuple(tokens.shape)}"
        )
    found = blocks_of(rows.shape[0], rows.shape[1] - 1)
    if found < LEAST_BLOCKS:
        raise ValueError(
            f"tokens must have at least {LEAST_BLOCKS} blocks of {BLOCK} predicted tokens, got "
            f"{found} in {tuple(tokens.shape)}; use a longer text"
        )
    return rows.long()


def _checked(fractions: Sequence[float]) -> tuple[float, ...]:
    for fraction in fractions:
        check_number("fractions", fraction, zero=True)
        if fraction > 1:
            raise ValueError(f"fractions must be at most 1, all pairs, got {fraction}")
    return tuple(sorted({1.0, *map(float, fractions)}, reverse=True))


def _check_ids(name: str, ids: Tensor, vocabulary: int, least: int | None = None) -> None:
    low, most = (int(each) for each in ids.aminmax())
    if (least is not None and low < least) or most >= vocabulary:
        wrong = most if most >= vocabulary else low
        raise ValueError(f"{name} must be ids from 0 to {vocabulary - 1}, got {wrong}")


def _check_memory(subject: Model, length: int) -> None:
    check_fits(
        4 * numbers_of(subject, length, attention=True),
        subject.device,
        rule="tokens must have shorter rows",
        what=f"the attention of all layers and the logits for {length:,} tokens need",
    )
