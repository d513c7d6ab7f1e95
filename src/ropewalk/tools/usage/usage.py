"""`usage`: which frequencies the heads of a model use, on one text.

One pass through the model measures norms and heads, and one for each p its loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from ropewalk.bootstrap import ratio_interval
from ropewalk.checks import check_number, shown
from ropewalk.machine import check_fits
from ropewalk.tools.live_model import check_finite, check_ids, preserved
from ropewalk.tools.usage.head_usage import (
    Attending,
    Cost,
    Head,
    Layer,
    Usage,
    pair_squares,
    without_rotation,
)
from ropewalk.tools.usage.usage_models import (
    Attended,
    OwnModel,
    Role,
    TransformersModel,
    subject_of,
)

BLOCK = 32  # predicted tokens that are drawn together, because neighbors are alike
LEAST_BLOCKS = 10  # fewer give intervals that are too narrow
DRAWS = 2_000


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


def measure_layers(
    subject: Model, tokens: Tensor, causal: bool, unmeasured: list[str]
) -> tuple[Layer, ...]:
    """Return norms and heads of each layer with a rope, from one pass."""
    squares: dict[tuple[int, Role], Tensor] = {}  # of norms of pairs (heads, R/2), over all tokens
    attending: dict[int, Attending] = {}
    ropes = {at: rope for at, rope in enumerate(subject.ropes) if rope is not None}

    def record(layer: int, role: Role, before: Tensor, after: Tensor) -> Tensor:
        if layer not in ropes:
            raise ValueError(f"model must not rotate in layer {layer}, which is without a rope")
        more = pair_squares(before, ropes[layer].spec).sum((0, 2)).cpu()
        squares[layer, role] = squares[layer, role] + more if (layer, role) in squares else more
        return after

    length = tokens.shape[1]

    def see(layer: int, attended: Attended) -> None:
        if layer in ropes:
            attending.setdefault(layer, Attending(length, causal)).add(attended.weights)

    for batch in tokens.split(_batch(subject, length, attention=True)):
        with subject.visiting(record):
            subject.attend(batch, see)
    missing = [layer for layer in ropes if (layer, "q") not in squares]
    if missing:
        raise ValueError(
            f"model must rotate its queries in layer {missing[0]} by a function with a name such "
            f"as apply_rotary_pos_emb, got none in {type(subject.model).__name__}"
        )
    if len(attending) < len(ropes):
        unmeasured.append("the heads: the model does not return attention probabilities")

    def norms(layer: int, role: Role, vectors: str) -> Tensor:
        if (layer, role) not in squares:
            return torch.zeros(0, 0)
        check_finite(subject.model, squares[layer, role], f"the {vectors} of layer {layer}")
        mean = squares[layer, role] / tokens.numel()
        return mean.sqrt()[:, ropes[layer].order] * ropes[layer].amplitude

    layers = []
    for layer, rope in ropes.items():
        q, k = norms(layer, "q", "queries"), norms(layer, "k", "keys")
        grouped = len(k) > 0 and len(q) % len(k) == 0
        products = q * k.repeat_interleave(len(q) // len(k), 0) if grouped else torch.zeros(0, 0)
        heads = [Head(None, None, None, None, None)] * len(q)
        if layer in attending:
            heads = attending[layer].heads()
        q_norms, k_norms, bounds = (tuple(map(tuple, x.tolist())) for x in (q, k, products))
        wavelengths, kind = tuple(rope.wavelengths.tolist()), subject.layer_types[layer]
        layers.append(Layer(layer, kind, wavelengths, q_norms, k_norms, bounds, tuple(heads)))
    return tuple(layers)


def measure_costs(
    subject: Model, tokens: Tensor, targets: Tensor, fractions: Sequence[float]
) -> tuple[tuple[Cost, ...], int]:
    """Return the loss for each fraction, the first of which is 1, and how many tokens it is of.

    targets: `(B, S)`, what the model predicts; negative if nothing.
    """
    costs: list[Cost] = []
    whole: Tensor | None = None
    for fraction in fractions:
        losses = _losses(subject, tokens, targets, fraction)
        check_finite(subject.model, losses[(targets >= 0).cpu()], "its loss")
        whole = losses if whole is None else whole
        difference = losses - whole
        low, high = interval(difference)
        rotating = tuple(rope.rotating(fraction) for rope in subject.ropes if rope is not None)
        loss, change = (float(x[~x.isnan()].mean()) for x in (losses, difference))
        costs.append(Cost(fraction, rotating, loss, change, low, high))
    assert whole is not None
    return tuple(costs), int((~whole.isnan()).sum())


def _losses(subject: Model, tokens: Tensor, targets: Tensor, fraction: float) -> Tensor:
    """Return the loss of each target in nats, `(B, S)`, if only a share of the pairs rotates.

    It is NaN where nothing is predicted.
    """
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
            logits = subject.logits(batch).flatten(0, 1).float()
        flat = wanted.flatten()
        each = cross_entropy(logits, flat.clamp(min=0), reduction="none")
        losses.append(each.where(flat >= 0, torch.nan).cpu().double().view(wanted.shape))
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
    subject = subject_of(model, length)
    check_ids("tokens", tokens, subject.vocabulary)
    if targets is not None:
        targets = _checked_targets(targets, tokens, subject.vocabulary)
    check_fits(
        4 * numbers_of(subject, length, attention=True),
        subject.device,
        rule="tokens must have shorter rows",
        what=f"the attention of all layers and the logits for {length:,} tokens need",
    )
    tokens = tokens.to(subject.device)
    unmeasured: list[str] = []
    with preserved(model), torch.no_grad():
        model.eval()
        causal = subject.causal
        layers = measure_layers(subject, tokens, causal, unmeasured)
        # NaN makes comparisons false; a score may be infinite, where a token is impossible.
        check_finite(model, subject.output(tokens[:1]).clamp(-1, 1), "its output")
        costs: tuple[Cost, ...] = ()
        losses = 0
        if targets is None and not causal:
            unmeasured.append("the loss: the model does not predict the next token")
        elif not subject.has_logits:
            unmeasured.append("the loss: the model returns no logits")
        else:
            following = pad(tokens[:, 1:], (0, 1), value=-1)
            wanted = following if targets is None else targets.to(subject.device)
            costs, losses = measure_costs(subject, tokens, wanted, fractions)
    name = type(model).__name__
    return Usage(name, rows, length, losses, layers, costs, tuple(unmeasured))


def _checked_targets(targets: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
    if not isinstance(targets, Tensor) or targets.dtype not in INTEGERS:
        raise TypeError(f"targets must be a tensor of integer ids, got {shown(targets)}")
    rows = targets[None] if targets.ndim == 1 else targets
    if rows.shape != tokens.shape or bool((rows < 0).all()):
        raise ValueError(
            f"targets must have the shape {tuple(tokens.shape)} of tokens and an id of at least 0, "
            f"got {tuple(targets.shape)}"
        )
    check_ids("targets", rows.clamp(min=0), vocabulary)
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
    blocks = blocks_of(rows.shape[0], rows.shape[1] - 1)
    if blocks < LEAST_BLOCKS:
        raise ValueError(
            f"tokens must have at least {LEAST_BLOCKS} blocks of {BLOCK} predicted tokens, got "
            f"{blocks} in {tuple(tokens.shape)}; use a longer text"
        )
    return rows.long()


def _checked(fractions: Sequence[float]) -> tuple[float, ...]:
    for fraction in fractions:
        check_number("fractions", fraction, zero=True)
        if fraction > 1:
            raise ValueError(f"fractions must be at most 1, all pairs, got {fraction}")
    return tuple(sorted({1.0, *map(float, fractions)}, reverse=True))
