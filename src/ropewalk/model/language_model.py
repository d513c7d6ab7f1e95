"""A pre-norm stack over one sequence; it receives its position encoding as an argument.

Axes: `B` batch, `S` tokens, `V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.encodings import Encoding
from ropewalk.model.attention import self_placement
from ropewalk.model.cache import AttentionCache, DecoderCache
from ropewalk.model.context import ContextPart
from ropewalk.model.linear import linear
from ropewalk.model.transformer import Dropout, SelfAttentionLayer, TransformerShape


class LanguageModel(nn.Module):
    """One stack with one table for input and output embeddings.

    With `causal`, it is a decoder without memory, with `shape.decoder_layers` layers, that predicts
    the next token (Radford et al. 2018). Otherwise it is an encoder, with `shape.encoder_layers`
    layers, that fills in masked tokens (Devlin et al. 2019, arXiv 1810.04805). Build `encoding` for
    this stack. Embeddings are N(0, 1/width) times sqrt(width), as in `Transformer`.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import build
        >>> from ropewalk.model import LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=0, decoder_layers=2)
        >>> encoding = build("rotary", shape.stack_shape(causal=True))
        >>> model = LanguageModel(shape, encoding, causal=True)
        >>> model.logits(model(torch.tensor([[5, 17, 42]]))).shape
        torch.Size([1, 3, 100])
    """

    def __init__(self, shape: TransformerShape, encoding: Encoding, *, causal: bool) -> None:
        super().__init__()
        layers = shape.decoder_layers if causal else shape.encoder_layers
        if layers < 1:
            which = "decoder_layers" if causal else "encoder_layers"
            raise ValueError(f"{which} must be at least 1 with causal={causal}, got {layers}")
        self.shape, self.causal = shape, causal
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.encoding = encoding
        self.layers = nn.ModuleList(
            SelfAttentionLayer(shape, encoding.for_layer(i)) for i in range(layers)
        )
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        cache: DecoderCache | None = None,
        maps: list[Tensor] | None = None,
        context: ContextPart | None = None,
    ) -> Tensor:
        """Return the last hidden states `(B, S, width)`; `logits` computes scores from them.

        tokens: ids `(B, S)`; with a cache (causal models only), the new ones alone. A branching
            cache takes one token for each beam of a row.
        mask: boolean `(B, T)`, True at real tokens, for all T tokens including those in the cache.
            A causal model needs none for padding after its tokens.
        maps: a list that collects attention probabilities.
        context: this process's part of sequences that several processes compute together; tokens
            are those of the part alone, and mask and cache must be None.
        """
        caches: Sequence[AttentionCache | None] = [None] * len(self.layers)
        if context is not None:
            self._check_part(tokens, context, mask, cache)
            placement = context.placement(self.encoding.for_layer(0))
            looks = context.mask(self.causal)
            caches = [context.keys() for _ in self.layers]
            causal = self.causal and looks is None
        else:
            if cache is not None:
                if not self.causal:
                    raise ValueError(
                        "cache must be None with causal=False, got one: later tokens change "
                        "earlier ones, so everything must be computed again"
                    )
                caches = cache.own
            everything, seen = (DecoderCache(0) if cache is None else cache).add_tokens(tokens)
            if mask is not None and mask.shape != (len(tokens), len(everything)):
                raise ValueError(
                    f"mask must be (B, T), for all tokens including those in the cache: "
                    f"{(len(tokens), len(everything))}, got {tuple(mask.shape)}"
                )
            placement = self_placement(everything, tokens.shape[1], self.encoding.for_layer(0))
            looks = None if mask is None else mask[:, None, None, :]
            if seen is not None:  # by each beam
                looks = seen[:, None] if looks is None else seen[:, None] & looks
            causal = self.causal and seen is None
        x = self.embedding(tokens) * math.sqrt(self.shape.width)
        x = self.dropout(self.encoding.embed(x, placement.queries))
        for layer, own in zip(self.layers, caches, strict=True):
            x, probabilities = layer(x, placement, looks, maps is not None, causal, own)
            if maps is not None and probabilities is not None:
                maps.append(probabilities)
        out: Tensor = self.norm(x)
        return out

    def _check_part(
        self, tokens: Tensor, context: ContextPart, mask: Tensor | None, cache: DecoderCache | None
    ) -> None:
        if mask is not None or cache is not None:
            raise ValueError("mask and cache must be None with context; use cu_seqlens for padding")
        if tokens.shape[1:] != context.places.shape:
            raise ValueError(
                f"tokens must be (B, {len(context.places)}), this process's part of "
                f"{context.length} tokens, got {tuple(tokens.shape)}; use context.cut(tokens)"
            )
        linear = self.shape.attention != "softmax"
        for i in range(len(self.layers)):
            context.check_encoding(self.encoding.for_layer(i), linear=linear, causal=self.causal)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return scores of the vocabulary: `(…, width)` to `(…, V)`."""
        return linear(hidden, self.embedding.weight)

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> list[Tensor]:
        """Run once and return all attention probabilities: `(B, H, S, S)` for each layer."""
        maps: list[Tensor] = []
        self(tokens, maps=maps)
        return maps
