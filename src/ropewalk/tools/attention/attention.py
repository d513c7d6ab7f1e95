"""`attention`: what each head of a model looks at, and which rotary pairs make it do so."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.machine import available_memory
from ropewalk.tools.attention.split_scores import LayerAttention, ModelAttention, layer_of
from ropewalk.tools.live_model import check_finite, check_ids, preserved
from ropewalk.tools.usage.usage_models import Attended, OwnModel, TransformersModel, subject_of

INTEGERS = (torch.int64, torch.int32)
SQUARES = 6  # matrices (H, S, S) that a layer holds while it runs


def attention(
    model: nn.Module, ids: Tensor, *, on_layer: Callable[[int, int], None] | None = None
) -> ModelAttention:
    """Return the attention of a model to a text, with each score split by rotary pair.

    A score before the softmax is a sum over the pairs of the rope, and of the dimensions that do
    not rotate. Barbero et al. 2024, arXiv 2410.06205, find in such sums that fast pairs make heads
    of position, and slow ones carry meaning.

    model: of transformers, decoder or encoder, or a `LanguageModel`. It runs once, with its own
        plain attention, in eval mode, and is afterwards as it was. No other model may run in
        another thread meanwhile.
    ids: `(S,)`, at least two tokens, at positions from 0.
    on_layer: called with the layers that have run, and all layers.

    Returns a frozen dataclass. `layers[l]` has `contributions(head, query, key)`,
    `scores(head, without=range(…))`, `weights(head, without=range(…))` and `by_distance(head)`, and
    for each head how much of its scores distance explains. `unsplit` names the reason where scores
    are not split: each layer's weights are computed again from the parts, and must be the model's.

    Raises TypeError or ValueError if the model is neither, has no softmax attention that can be
    seen, or computes NaN, or if ids are not those of its vocabulary or too many for the memory.

    Example:
        >>> import torch
        >>> from ropewalk import tools
        >>> from ropewalk.encodings import build
        >>> from ropewalk.model import LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=0, decoder_layers=2)
        >>> encoding = build("rotary", shape.stack_shape(causal=True))
        >>> model = LanguageModel(shape, encoding, causal=True)
        >>> found = tools.attention(model, torch.arange(20)).layers[0]
        >>> parts, scores = found.contributions(0, query=19, key=3), found.scores(0)
        >>> len(parts), bool((parts.sum() - scores[19, 3]).abs() < 1e-5)
        (5, True)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(ids, Tensor) or ids.dtype not in INTEGERS:
        what = ids.dtype if isinstance(ids, Tensor) else shown(ids)
        raise TypeError(f"ids must be a tensor of integers (S,), got {what}")
    if ids.ndim != 1 or len(ids) < 2:
        raise ValueError(f"ids must be (S,) with at least 2 tokens, got {tuple(ids.shape)}")
    subject = subject_of(model, len(ids), needs_rope=False)
    check_ids("ids", ids, subject.vocabulary)
    _check_memory(subject, len(ids))
    found: dict[int, LayerAttention] = {}

    def see(layer: int, attended: Attended) -> None:
        check_finite(model, attended.q, f"its queries in layer {layer}")
        kind, rope = subject.layer_types[layer], subject.ropes[layer]
        found[layer] = layer_of(layer, kind, rope, attended)
        if on_layer is not None:
            on_layer(layer + 1, len(subject.ropes))

    with preserved(model), torch.no_grad():
        model.eval()
        subject.attend(ids[None].long().to(subject.device), see)
    if not found:
        raise ValueError(
            f"model must have softmax attention among its tokens, got none that is known in "
            f"{type(model).__name__}"
        )
    layers = tuple(found[layer] for layer in sorted(found))
    return ModelAttention(type(model).__name__, ids, layers)


def _check_memory(subject: OwnModel | TransformersModel, tokens: int) -> None:
    """Raise ValueError if q and k of all layers, and the weights of one, do not fit."""
    free = available_memory(subject.device)
    width = max((rope.spec.head_dim for rope in subject.ropes if rope is not None), default=128)
    linear = 4 * 2 * len(subject.ropes) * subject.heads * width
    square = 4 * SQUARES * subject.heads
    if free is None or linear * tokens + square * tokens**2 <= free:
        return
    most = int((sqrt(linear**2 + 4 * square * free) - linear) / (2 * square))
    raise ValueError(
        f"ids must be at most {most:,} tokens to fit into the {free / 2**30:,.1f} GiB that are "
        f"free, got {tokens:,}"
    )
