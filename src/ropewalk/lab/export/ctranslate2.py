"""A translation model as CTranslate2's specification of a transformer.

CTranslate2 has four ways to express a position encoding: rows added to the embeddings, rotated
queries and keys, a bias that depends on the distance, and Shaw's vectors. Layers of one stack share
the bias. For other encodings there is a reason why it cannot.
Source: python/ctranslate2/specs/attention_spec.py, src/layers/attention.cc and
src/layers/attention_layer.cc of OpenNMT/CTranslate2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Combined, Encoding, Placement, StackShape
from ropewalk.encodings.absolute import Binary, Integer, Learned, Sinusoidal
from ropewalk.encodings.biases import ALiBiSite, KerpleSite, ScoreBias, T5Site
from ropewalk.encodings.relative import ShawSite
from ropewalk.encodings.rotary import RotarySite
from ropewalk.lab.tokens import BOS, EOS, SPECIAL, UNK
from ropewalk.model import Attention, Transformer
from ropewalk.model.transformer import DecoderLayer, SelfAttentionLayer
from ropewalk.rotary.learned import LearnedRotaryEmbedding

if TYPE_CHECKING:
    from ctranslate2.specs.transformer_spec import TransformerSpec


#: Positions that are written where the format has a row for each. `ropewalk translate` reads
#: at most 2,001 source tokens and writes at most 4,012.
POSITIONS = 4_096

#: Encodings that add to the embeddings a vector of the position, or nothing.
_ADDED = (Encoding, Sinusoidal, Learned, Integer, Binary)


class NotExpressibleError(ValueError):
    """The engine has nothing that computes the same."""


@dataclass(frozen=True)
class SitePositions:
    """What one attention gets: arguments and fields of its specification.

    arguments: of `MultiHeadAttentionSpec`. fields: attributes that are set on it afterwards.
    query_factors: `(D,)`, what the rows of each query head are multiplied by, or None.
    tokens: the number of tokens up to which the engine computes the same, None without a limit.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    query_factors: Tensor | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class StackPositions:
    """What a stack gets: `table`, rows `(P, width)` to add to embeddings, or None; its layers.

    alibi: the engine computes ALiBi itself, which it only does in a decoder.
    """

    table: Tensor | None
    layers: tuple[SitePositions, ...]
    alibi: bool = False


@torch.no_grad()
def positions_of(encoding: Encoding, shape: StackShape) -> StackPositions:
    """Return how the engine expresses an encoding. Raises NotExpressibleError with the reason."""
    layers, causal = shape.layers, shape.causal
    sites = [encoding.for_layer(i) for i in range(layers)]
    if all(type(site) is AttentionEncoding for site in sites):
        return StackPositions(_table(encoding, shape.width), (SitePositions(),) * layers)
    if type(encoding).embed is not Encoding.embed:
        raise NotExpressibleError("CTranslate2 adds to embeddings or acts in attention, not both")
    if causal and type(sites[0]) is ALiBiSite:
        return StackPositions(None, (SitePositions(),) * layers, alibi=True)
    return StackPositions(None, tuple(_site(site, causal) for site in sites))


def _table(encoding: Encoding, width: int) -> Tensor:
    parts = list(encoding.parts) if isinstance(encoding, Combined) else [encoding]
    if any(type(part) not in _ADDED for part in parts):
        raise NotExpressibleError("it is a user-defined encoding")
    most = encoding.max_positions
    count = POSITIONS if most is None else min(POSITIONS, most)
    return encoding.embed(torch.zeros(count, width), torch.arange(count))


def _site(site: AttentionEncoding, causal: bool) -> SitePositions:
    if type(site) is RotarySite:
        return _rotary(site)
    if type(site) in (ALiBiSite, T5Site, KerpleSite):
        assert isinstance(site, ScoreBias)
        return _bias(site, causal)
    if type(site) is ShawSite:
        return _shaw(site)
    raise NotExpressibleError(
        "CTranslate2 has no such attention; it has that of rotary, alibi, t5, kerple and shaw"
    )


def _rotary(site: RotarySite) -> SitePositions:
    """Return the rotation; frequencies that are not theta^(-2i/R) become LongRoPE's factors.

    The engine computes `1 / (factor[i] * base^(2i/R))`, so base 1 and the reciprocals of any
    frequencies, of both signs and 0, give these frequencies.
    """
    from ctranslate2.specs import attention_spec

    if site.rotates_values:
        raise NotExpressibleError("CTranslate2 does not rotate values (values)")
    spec = site.rope.spec
    own = spec.theta ** (-2 * torch.arange(spec.pairs, dtype=torch.float64) / spec.rotary_dim)
    if isinstance(site.rope, LearnedRotaryEmbedding):
        if site.rope.frequencies.shape[1] != 1:
            raise NotExpressibleError("CTranslate2 rotates all heads the same way (learned=head)")
        frequencies = site.rope.frequencies[0, 0].double()
    else:
        frequencies = spec.inverse_frequencies(site.length)
    arguments: dict[str, Any] = {
        "rotary_dim": spec.rotary_dim,
        "rotary_interleave": spec.pairing == "interleaved",
        "rotary_base": spec.theta,
    }
    fields: dict[str, Any] = {}
    if not torch.allclose(frequencies, own, rtol=1e-12, atol=0):
        arguments |= {
            "rotary_base": 1.0,
            "rotary_scaling_type": attention_spec.RotaryScalingType.Su,
        }
        reciprocals = (1 / frequencies).float()
        fields = {f"rotary_scaling_{length}_factor": reciprocals for length in ("long", "short")}
    amplitude, factors = spec.amplitude_at(site.length), None
    if amplitude != 1:  # of both q and k
        factors = torch.ones(spec.head_dim)
        factors[: spec.rotary_dim] = amplitude**2
    return SitePositions(arguments, fields, factors)


def _bias(site: ScoreBias, causal: bool) -> SitePositions:
    """Return the bias of each distance as T5's table, with a bucket for each distance.

    CTranslate2 gives the first half of a side's buckets one distance each, and computes borders of
    the second half with logarithms. This table is twice as long as needed, so all distances that
    matter are in the first half. T5's bias is constant from some distance on: its table is exact at
    any distance. Other tables are exact below `POSITIONS`.
    """
    last = site.borders[-1] if isinstance(site, T5Site) else POSITIONS
    exact = min(last, POSITIONS - 1)
    away = torch.arange(2 * (exact + 1)).clamp(max=exact)
    one_query = Placement(torch.zeros(1, dtype=torch.int64), -away)
    sides = [site.form(one_query)[:, 0]]
    if not causal:
        sides.append(site.form(Placement(one_query.queries, away))[:, 0])
    fields: dict[str, Any] = {
        "relative_attention_bias": torch.cat(sides, 1).T.float().contiguous(),  # (buckets, H)
        "relative_attention_max_distance": torch.tensor(len(away), dtype=torch.int32).numpy(),
    }
    scale = getattr(site, "scale", None)
    if scale is not None:
        fields["queries_scale"] = float(scale)
    tokens = None if last < POSITIONS else POSITIONS
    return SitePositions({"relative_attention_bias": True}, fields, tokens=tokens)


def _shaw(site: ShawSite) -> SitePositions:
    from ctranslate2.specs import model_spec

    if len(site.keys.weight) != site.count:
        raise NotExpressibleError("all heads of CTranslate2 share their vectors (per_head=True)")
    values = model_spec.OPTIONAL if site.values is None else site.values.weight.detach().float()
    fields = {
        "relative_position_keys": site.keys.weight.detach().float(),
        "relative_position_values": values,
    }
    return SitePositions({"relative_position": True}, fields)


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
        _fill_norm(to.ffn.layer_norm, layer.feed_forward_norm)
        _fill_linear(to.ffn.linear_0, _both(layer.feed_forward.inner))
        _fill_linear(to.ffn.linear_1, _both(layer.feed_forward.outer))


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


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _values(norm.weight), _values(norm.bias)


def _both(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    return linear.weight.detach(), linear.bias.detach()


def _values(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32).contiguous()
