"""A user's project, as a type checker sees it: each public name with the type that it returns.

`.ci/typing` checks it against the installed package, by mypy and pyright in strict mode. Nothing
runs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk.encodings import AttentionEncoding, Encoding, StackShape, build
from ropewalk.figures import Picture
from ropewalk.model import (
    Attention,
    AttentionOutput,
    KeyValueCache,
    LanguageModel,
    TransformerShape,
)
from ropewalk.testing import assert_rope_like


def specs(config: Mapping[str, Any]) -> rw.RotarySpec:
    rule = rw.scaling.Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_length=8192)
    spec = rw.RotarySpec(head_dim=128, theta=500_000.0, pairing="half", scaling=rule)
    assert_type(spec.inverse_frequencies(), Tensor)
    assert_type(spec.wavelengths(length=4096), Tensor)
    assert_type(spec.pairs, int)
    model = rw.ModelSpec.from_config(config)
    assert_type(model, rw.ModelSpec)
    assert_type(model.layers, tuple[rw.LayerSpec, ...])
    assert_type(model.layers[0].rope, rw.RotarySpec | None)
    assert_type(model.layers[0].query_temperature, rw.QueryTemperature | None)
    return spec


def embedding(q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    rope = rw.RotaryEmbedding(rw.RotarySpec(head_dim=64))
    module: nn.Module = rope
    assert_type(rope(q, k), tuple[Tensor, Tensor])
    assert_type(rope(q, k, positions, offset=3, seq_dim=-3), tuple[Tensor, Tensor])
    assert_type(rope.rotate(q, positions), Tensor)
    assert_type(rope.unrotate(q, positions), Tensor)
    assert_type(rope.shift(k, by=-512), Tensor)
    cos, sin = rope.tables(positions)
    assert_type(cos, Tensor)
    module.train()
    return rw.rotate(q, cos, sin, pairing="interleaved")


def positions_of(lengths: Sequence[int]) -> Tensor:
    assert_type(rw.positions.packed(lengths), Tensor)
    assert_type(rw.positions.grid(4, 6), Tensor)
    return rw.positions.packed(lengths)


def encodings() -> AttentionEncoding:
    shape = StackShape(layers=2, heads=4, kv_heads=2, head_dim=16, width=64, causal=True)
    encoding = build("rotary(theta=1e6)", shape)
    assert_type(encoding, Encoding)
    assert_type(encoding.embed(torch.zeros(1, 3, 64), torch.arange(3)), Tensor)
    return encoding.for_layer(0)


def models(x: Tensor) -> Tensor:
    shape = TransformerShape(50, 32, 4, 64, encoder_layers=0, decoder_layers=2)
    stack = shape.stack_shape(causal=True)
    attention = Attention(32, 4, encoding=build("alibi", stack).for_layer(0))
    cache = KeyValueCache()
    assert_type(attention(x, causal=True, cache=cache), AttentionOutput)
    assert_type(cache.length, int)
    model = LanguageModel(shape, build("rotary", stack), causal=True)
    assert_type(model.logits(x), Tensor)
    return attention(x).output


def learned(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    rope = rw.LearnedRotaryEmbedding(rw.RotarySpec(head_dim=64), heads=4)
    assert_type(rw.XPosEmbedding(rw.RotarySpec(head_dim=64))(q, k), tuple[Tensor, Tensor])
    return rope(q, k)


def figures() -> None:
    picture = rw.figures.wavelengths_by_pair({"rotary": [6.28, 628.0]})
    assert_type(picture, Picture)
    assert_type(picture.svg(dark=True), bytes)


def tools(path: Path, model: nn.Module) -> None:
    spec = rw.RotarySpec(head_dim=64)
    report = rw.tools.verify(model, like=spec)
    assert_type(report.right, bool)
    assert_type(report.to_dict(), dict[str, Any])
    rw.tools.inspect(path)
    rw.tools.extend(path, to=32_768)
    rw.patch(model)
    assert_rope_like(model, path)
