"""`usage`: which frequencies the heads of a model use, on one text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.checks import check_number, shown
from ropewalk.machine import check_fits
from ropewalk.model import LanguageModel
from ropewalk.tools.usage.cost import BLOCK, LEAST_BLOCKS, blocks_of
from ropewalk.tools.usage.facts import Cost, Usage
from ropewalk.tools.usage.own import OwnModel
from ropewalk.tools.usage.passes import (
    Model,
    check_output,
    measure_costs,
    measure_layers,
    numbers_of,
)
from ropewalk.tools.usage.theirs import TransformersModel, is_transformers
from ropewalk.tools.verify.state import preserved

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
