"""A translation model as CTranslate2's specification of a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding
from ropewalk.lab.export.positions import (
    NotExpressibleError,
    SitePositions,
    StackPositions,
    positions_of,
)
from ropewalk.lab.tokens import BOS, EOS, SPECIAL, UNK
from ropewalk.model import Attention, Transformer
from ropewalk.model.transformer import DecoderLayer, FeedForward, SelfAttentionLayer

if TYPE_CHECKING:
    from ctranslate2.specs.transformer_spec import TransformerSpec


def transformer_spec(model: Transformer, pieces: Sequence[str]) -> TransformerSpec:
    """Return the specification of a model whose vocabulary has these tokens.

    Raises NotExpressibleError, with the reason, if the engine would compute something else.
    """
    from ctranslate2.specs import common_spec
    from ctranslate2.specs import transformer_spec as specs

    if model.shape.attention != "softmax":
        raise NotExpressibleError(f"CTranslate2 has no linear attention ({model.shape.attention})")
    for layer in range(model.shape.decoder_layers):
        if type(model.cross_encoding.for_layer(layer)) is not AttentionEncoding:
            raise NotExpressibleError("CTranslate2 has no positions between texts (cross=True)")
    heads, stacks = model.shape.heads, positions_of_stacks(model)
    # With `relative_position`, a stack of the specification has no table of positions.
    encoder = specs.TransformerEncoderSpec(
        len(model.encoder),
        heads,
        activation=common_spec.Activation.RELU,
        relative_position=stacks[0].table is None,
    )
    decoder = specs.TransformerDecoderSpec(
        len(model.decoder),
        heads,
        activation=common_spec.Activation.RELU,
        relative_position=stacks[1].table is None,
        alibi=stacks[1].alibi,
    )
    table = _values(model.embedding.weight)
    encoder.embeddings[0].weight = decoder.embeddings.weight = decoder.projection.weight = table
    _fill_stack(encoder, model.encoder, model.encoder_norm, stacks[0])
    _fill_stack(decoder, model.decoder, model.decoder_norm, stacks[1])
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.unk_token, spec.config.bos_token = SPECIAL[UNK], SPECIAL[BOS]
    spec.config.eos_token, spec.config.decoder_start_token = SPECIAL[EOS], SPECIAL[BOS]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder_norm.eps
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    return spec


def positions_of_stacks(model: Transformer) -> tuple[StackPositions, StackPositions]:
    """Return how the engine expresses the encodings of encoder and decoder."""
    shape = model.shape
    return (
        positions_of(model.encoder_encoding, shape.stack_shape(causal=False)),
        positions_of(model.decoder_encoding, shape.stack_shape(causal=True)),
    )


def _fill_stack(
    spec: Any, layers: nn.ModuleList, norm: nn.LayerNorm, positions: StackPositions
) -> None:
    if positions.table is not None:
        spec.position_encodings.encodings = _values(positions.table)
    _fill_norm(spec.layer_norm, norm)
    for to, layer, own in zip(spec.layer, layers, positions.layers, strict=True):
        assert isinstance(layer, (SelfAttentionLayer, DecoderLayer))
        to.self_attention = _self_attention(layer.attention, own)
        _fill_norm(to.self_attention.layer_norm, layer.attention_norm)
        if isinstance(layer, DecoderLayer):
            query, *key_value = _projections(layer.cross)
            _fill_linear(to.attention.linear[0], query)
            _fill_linear(to.attention.linear[1], *key_value)
            _fill_linear(to.attention.linear[2], _both(layer.cross.output))
            _fill_norm(to.attention.layer_norm, layer.cross_norm)
        _fill_feed_forward(to.ffn, layer.feed_forward, layer.feed_forward_norm)


def _self_attention(attention: Attention, positions: SitePositions) -> Any:
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec

    spec = MultiHeadAttentionSpec(self_attention=True, **positions.arguments)
    for name, value in positions.fields.items():
        setattr(spec, name, value)
    query, *key_value = _projections(attention)
    if positions.query_factors is not None:
        factors = positions.query_factors.repeat(attention.heads)
        query = query[0] * factors[:, None], query[1] * factors
    _fill_linear(spec.linear[0], query, *key_value)
    _fill_linear(spec.linear[1], _both(attention.output))
    return spec


def _projections(attention: Attention) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of queries, keys and values, for one key head per query head.

    The engine has no grouped key heads in cross-attention, so shared heads are written repeatedly.
    """
    repeats = attention.heads // attention.kv_heads

    def repeated(rows: Tensor) -> Tensor:
        heads: Tensor = rows.unflatten(0, (attention.kv_heads, attention.head_dim))
        return heads.repeat_interleave(repeats, 0).flatten(0, 1)

    weights, biases = (each.chunk(2) for each in _both(attention.key_value))
    keys_values = [(repeated(w), repeated(b)) for w, b in zip(weights, biases, strict=True)]
    return [_both(attention.query), *keys_values]


def _fill_linear(spec: Any, *parts: tuple[Tensor, Tensor]) -> None:
    weights, biases = zip(*parts, strict=True)
    spec.weight, spec.bias = _values(torch.cat(weights)), _values(torch.cat(biases))


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.LayerNorm) -> None:
    _fill_norm(spec.layer_norm, norm)
    _fill_linear(spec.linear_0, _both(feed_forward.inner))
    _fill_linear(spec.linear_1, _both(feed_forward.outer))


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _values(norm.weight), _values(norm.bias)


def _both(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    return linear.weight.detach(), linear.bias.detach()


def _values(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32).contiguous()
