"""A pre-norm encoder-decoder transformer; it receives its position encodings as arguments.

Here are also its sizes, and dropout with cheap random bits.

Axes: `B` batch, `S` source or target tokens, `V` vocabulary. Attention probabilities have
the axes `H` heads, `S` queries and `T` keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int
from ropewalk.encodings import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.model.attention import Attention, self_placement
from ropewalk.model.cache import AttentionCache, DecoderCache
from ropewalk.model.features import parse_attention, rotated_dim
from ropewalk.model.linear import TrainedLinear, linear


@dataclass(frozen=True)
class TransformerShape:
    """Sizes of a transformer and its kind of attention.

    Source and target share `vocabulary`; `attention` is `softmax`, `performer`,
    `performer(features=64, rotate=before)` or `elu`, for all attentions of the model.

    Example:
        >>> from ropewalk.model import TransformerShape
        >>> shape = TransformerShape(
        ...     vocabulary=99, width=32, heads=4, feed_forward=64,
        ...     encoder_layers=2, decoder_layers=2,
        ... )
        >>> shape.stack_shape(causal=True).head_dim
        8
    """

    vocabulary: int
    width: int
    heads: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    kv_heads: int | None = None
    dropout: float = 0.0
    attention: str = "softmax"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "heads", "feed_forward"):
            check_int(name, getattr(self, name), 1)
        for name in ("encoder_layers", "decoder_layers"):
            check_int(name, getattr(self, name), 0)

    def stack_shape(self, *, causal: bool) -> StackShape:
        """Return the shape for which to build the decoder's encoding (causal) or the encoder's."""
        return StackShape(
            layers=self.decoder_layers if causal else self.encoder_layers,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            head_dim=rotated_dim(self.attention, self.width // self.heads),
            width=self.width,
            causal=causal,
        )

    def new_attention(self, encoding: AttentionEncoding) -> Attention:
        """Return an attention of these sizes with this site of an encoding."""
        return Attention(
            self.width, self.heads, kv_heads=self.kv_heads, encoding=encoding, kind=self.attention
        )

    def new_cache(self, layers: int, *, branching: bool = False) -> DecoderCache:
        """Return an empty cache for this number of layers with this kind of attention."""
        linear = parse_attention(self.attention) is not None
        return DecoderCache(layers, branching=branching, linear=linear)


class Dropout(nn.Module):
    """Zero each element with probability p and scale the rest by 1/(1 - p).

    p is exact to within 2^-16. Each random 64-bit draw decides four elements: torch's own dropout
    on CPU draws one number per element, which takes longer than the matrix product before it.
    Source: Srivastava et al. 2014, Journal of Machine Learning Research 15.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must lie in [0, 1), got {p!r}")
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * self._mask(x)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual + dropout(x)` in the residual's dtype, in one pass over both."""
        x = x.to(residual.dtype)
        if not self.training or self.p == 0:
            return residual + x
        return torch.addcmul(residual, x, self._mask(x))

    def _mask(self, x: Tensor) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
        lanes = draws.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
        lowest = min(round(self.p * 2**16), 2**16 - 1) - 2**15  # 16-bit value that is kept
        keep = lanes >= lowest
        return keep.to(x.dtype).mul_(1 / (1 - self.p))


class AttentionMaps(NamedTuple):
    """Attention probabilities of one forward pass, one `(B, H, S, T)` tensor for each layer.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import Encoding
        >>> from ropewalk.model import Transformer, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=2, decoder_layers=2)
        >>> model = Transformer(shape, Encoding(), Encoding())
        >>> maps = model.attention_maps(torch.tensor([[5, 17, 42]]), torch.tensor([[1, 9]]))
        >>> len(maps.cross), maps.cross[0].shape
        (2, torch.Size([1, 4, 2, 3]))
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner = TrainedLinear(width, hidden)
        self.outer = TrainedLinear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        # If x were not flattened first, `inner` would return a view, and autograd would copy that
        # view because `relu_` changes it in place.
        rows: Tensor = self.outer(self.inner(x.flatten(0, -2)).relu_())
        return rows.view_as(x)


class SelfAttentionLayer(nn.Module):
    """Self-attention, then a feed-forward network (pre-norm).

    Each of the two reads a normalized x, and its output is added to x.

    It is the layer of an encoder or, with `causal`, of a decoder-only model.
    """

    def __init__(self, shape: TransformerShape, own: AttentionEncoding) -> None:
        super().__init__()
        width = shape.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = shape.new_attention(own)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, shape.feed_forward)
        self.dropout = Dropout(shape.dropout)

    def forward(
        self,
        x: Tensor,
        placement: Placement,
        mask: Tensor | None,
        need_probabilities: bool,
        causal: bool = False,
        cache: AttentionCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output `(B, S, width)`, and the attention probabilities or None."""
        output, probabilities = self.attention(
            self.attention_norm(x),
            placement=placement,
            mask=mask,
            causal=causal,
            cache=cache,
            need_probabilities=need_probabilities,
        )
        x = self.dropout.add(x, output)
        x = self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))
        return x, probabilities


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to memory, and feed-forward, all pre-norm."""

    def __init__(
        self, shape: TransformerShape, own: AttentionEncoding, cross: AttentionEncoding
    ) -> None:
        super().__init__()
        width = shape.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = shape.new_attention(own)
        self.cross_norm = nn.LayerNorm(width)
        self.cross = shape.new_attention(cross)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, shape.feed_forward)
        self.dropout = Dropout(shape.dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        own: Placement,
        across: Placement,
        masks: tuple[Tensor | None, Tensor | None],
        caches: tuple[AttentionCache | None, AttentionCache | None],
        need_probabilities: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the output `(B, S, width)`, and for both attentions the probabilities or None.

        `own` holds the positions of the target's tokens; `across` holds those of the target's and
        the memory's tokens. `masks` and `caches` are pairs: self-attention, cross-attention. If the
        first mask is None, self-attention is causal.
        """
        output, own_probabilities = self.attention(
            self.attention_norm(x),
            placement=own,
            mask=masks[0],
            causal=masks[0] is None,
            cache=caches[0],
            need_probabilities=need_probabilities,
        )
        x = self.dropout.add(x, output)
        output, cross_probabilities = self.cross(
            self.cross_norm(x),
            memory,
            placement=across,
            mask=masks[1],
            cache=caches[1],
            need_probabilities=need_probabilities,
        )
        x = self.dropout.add(x, output)
        x = self.dropout.add(x, self.feed_forward(self.feed_forward_norm(x)))
        return x, own_probabilities, cross_probabilities


class Transformer(nn.Module):
    """Pre-norm encoder-decoder with one table for source, target and output embeddings.

    `encoder` and `decoder` are the encodings of the two stacks; `cross` is that of
    cross-attention (default: none). Whatever the encoding, token embeddings start as N(0, 1/width)
    and are multiplied by sqrt(width).

    Example:
        >>> import torch
        >>> from ropewalk.encodings import build_encoder_decoder
        >>> from ropewalk.model import Transformer, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=2, decoder_layers=2)
        >>> stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
        >>> model = Transformer(shape, *build_encoder_decoder("rotary", *stacks))
        >>> hidden = model(torch.tensor([[5, 17, 42]]), torch.tensor([[1, 9]]))
        >>> model.logits(hidden).shape
        torch.Size([1, 2, 100])
    """

    def __init__(
        self,
        shape: TransformerShape,
        encoder: Encoding,
        decoder: Encoding,
        cross: Encoding | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.encoder_encoding, self.decoder_encoding = encoder, decoder
        self.cross_encoding = Encoding() if cross is None else cross
        self.encoder = nn.ModuleList(
            SelfAttentionLayer(shape, encoder.for_layer(i)) for i in range(shape.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(shape, decoder.for_layer(i), self.cross_encoding.for_layer(i))
            for i in range(shape.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(shape.width)
        self.decoder_norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Return the decoder's last hidden states `(B, S, width)`, the input of `logits`.

        source and target: token ids `(B, S)`; source_mask: boolean `(B, S)`, True at real tokens.
        Target padding needs no mask: it comes last, and causal attention never looks ahead.
        """
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, source_mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return scores of the vocabulary: `(…, width)` to `(…, V)`."""
        return linear(hidden, self.embedding.weight)

    def encode(
        self, source: Tensor, mask: Tensor | None = None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """Encode source `(B, S)` into memory `(B, S, width)`; `maps` collects attention."""
        positions = torch.arange(source.shape[1], device=source.device)
        x = self._embed(source, positions, self.encoder_encoding)
        placement = Placement(positions)
        looks = None if mask is None else mask[:, None, None, :]
        for layer in self.encoder:
            x, probabilities = layer(x, placement, looks, maps is not None)
            if maps is not None:
                maps.append(probabilities)
        out: Tensor = self.encoder_norm(x)
        return out

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
        maps: tuple[list[Tensor], list[Tensor]] | None = None,
    ) -> Tensor:
        """Decode target `(B, S)` given memory; with a cache, target is the new tokens alone.

        In beam search, a row of target is for one source sentence, and has one token for each beam.
        S is then the number of beams.
        """
        everything, seen = (DecoderCache(0) if cache is None else cache).add_tokens(target)
        own = self_placement(everything, target.shape[1], self.decoder_encoding.for_layer(0))
        across = Placement(own.queries, torch.arange(memory.shape[1], device=target.device))
        x = self._embed(target, own.queries, self.decoder_encoding)
        masks = (
            None if seen is None else seen[:, None],
            None if memory_mask is None else memory_mask[:, None, None, :],
        )
        for i, layer in enumerate(self.decoder):
            caches = (None, None) if cache is None else (cache.own[i], cache.memory[i])
            x, at_target, at_memory = layer(x, memory, own, across, masks, caches, maps is not None)
            if maps is not None:
                maps[0].append(at_target)
                maps[1].append(at_memory)
        out: Tensor = self.decoder_norm(x)
        return out

    @torch.no_grad()
    def attention_maps(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None
    ) -> AttentionMaps:
        """Run once and return all attention probabilities."""
        maps = AttentionMaps([], [], [])
        memory = self.encode(source, source_mask, maps.encoder)
        self.decode(target, memory, source_mask, maps=(maps.decoder, maps.cross))
        return maps

    def _embed(self, tokens: Tensor, positions: Tensor, encoding: Encoding) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.shape.width)
        out: Tensor = self.dropout(encoding.embed(x, positions))
        return out
