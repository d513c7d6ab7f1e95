"""Sizes of a transformer, and the parts that are built from them."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.checks import check_int
from ropewalk.encodings import AttentionEncoding, StackShape
from ropewalk.model.attention import Attention
from ropewalk.model.cache import DecoderCache
from ropewalk.model.features import parse_attention, rotated_dim


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
            self.width,
            self.heads,
            kv_heads=self.kv_heads,
            encoding=encoding,
            kind=self.attention,
        )

    def new_cache(self, layers: int, *, branching: bool = False) -> DecoderCache:
        """Return an empty cache for this number of layers with this kind of attention."""
        linear = parse_attention(self.attention) is not None
        return DecoderCache(layers, branching=branching, linear=linear)
