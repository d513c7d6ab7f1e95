"""Rotation inside models that use ropewalk's own `Attention`, seen and replaced while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.rotary import RotarySite
from ropewalk.model import Attention, LanguageModel
from ropewalk.rotary.learned import LearnedRotaryEmbedding
from ropewalk.tools.usage.pairs import Rope

Role = Literal["q", "k"]

Visit = Callable[[int, Role, Tensor, Tensor], Tensor]
"""Called with a layer, "q" or "k", and vectors (B, H, S, D) before and after rotation; what it
returns takes the place of the rotated vectors."""


@contextmanager
def visiting_attention(model: nn.Module, visit: Visit) -> Iterator[None]:
    """Context in which `visit` sees the queries and keys of each `Attention` that runs."""
    attentions = [m for m in model.modules() if isinstance(m, Attention)]
    running: list[int] = [0]

    def enter(layer: int) -> Callable[..., None]:
        def entered(*_: Any) -> None:
            running[0] = layer

        return entered

    with ExitStack() as stack:
        for layer, attention in enumerate(attentions):
            stack.callback(attention.register_forward_pre_hook(enter(layer)).remove)
        for site in {attention.encoding for attention in attentions}:  # layers may share one
            stack.enter_context(_visited(site, visit, running))
        yield


@contextmanager
def _visited(site: AttentionEncoding, visit: Visit, running: list[int]) -> Iterator[None]:
    original = site.rotate

    def rotate(q: Tensor, k: Tensor | None, placement: Placement) -> tuple[Tensor, Tensor | None]:
        rotated_q, rotated_k = original(q, k, placement)
        rotated_q = visit(running[0], "q", q, rotated_q)
        if k is not None and rotated_k is not None:
            rotated_k = visit(running[0], "k", k, rotated_k)
        return rotated_q, rotated_k

    before = vars(site).get("rotate")
    vars(site)["rotate"] = rotate
    try:
        yield
    finally:
        del vars(site)["rotate"]
        if before is not None:
            vars(site)["rotate"] = before


class OwnModel:
    """A `LanguageModel`: its ropes by layer, its rotation, its attention and its logits.

    Raises ValueError if it has no rope, or one without fixed frequencies.
    """

    has_logits = True

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.vocabulary = model.shape.vocabulary
        self.heads = model.shape.heads
        self.device = model.embedding.weight.device
        attentions = [m for m in model.modules() if isinstance(m, Attention)]
        if any(attention.linear is not None for attention in attentions):
            raise ValueError("model must have softmax attention, got linear attention")
        named = type(model.encoding).__name__
        ropes = [_rope_of(attention.encoding, named) for attention in attentions]
        self.ropes: tuple[Rope | None, ...] = tuple(ropes)
        self.layer_types: tuple[str | None, ...] = (None,) * len(ropes)
        self.causal = model.causal

    def visiting(self, visit: Visit) -> Any:
        """Return a context in which `visit` sees queries and keys."""
        return visiting_attention(self.model, visit)

    def maps(self, tokens: Tensor) -> list[Tensor | None]:
        """Return the attention probabilities `(B, H, S, S)` of each layer."""
        return list(self.model.attention_maps(tokens))

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores `(B, S, V)` of the next token."""
        return self.model.logits(self.model(tokens))

    output = logits


def _rope_of(site: AttentionEncoding, named: str) -> Rope:
    if not isinstance(site, RotarySite):
        raise ValueError(
            f"model must have a rope in its attention, got the encoding {named}, whose attention "
            f"has {type(site).__name__}"
        )
    if isinstance(site.rope, LearnedRotaryEmbedding):
        raise ValueError(
            f"model must have fixed frequencies, got learned ones in {named}; pairs could not be "
            f"compared between layers and heads"
        )
    return Rope(site.rope.spec, site.length)
