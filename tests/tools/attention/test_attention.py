"""`attention`: parts of scores, against the scores and weights of the models' own code.

These fail if a part belongs to another pair, if parts do not sum to the model's score before its
softmax, if the softmax over them is not the model's attention, if a planted head of the previous
token is not found, or if a head whose scores have another source is split all the same.
"""

import math
import sys
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec, rotate, tools
from ropewalk.encodings import build
from ropewalk.model import LanguageModel, TransformerShape
from ropewalk.tools.attention.split_scores import layer_of
from ropewalk.tools.usage.head_usage import Rope
from ropewalk.tools.usage.usage_models import Attended

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from tiny_models import FAMILIES, any_tiny_model

IDS = torch.randint(3, 60, (40,), generator=torch.Generator().manual_seed(3))
#: Of each kind of attention: grouped, normed, partial, capped, windowed, with sinks, latent, both
#: ways, by code that calls torch itself, and two without a rope.
QUICK = ("llama", "qwen3", "gpt_neox", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3",
         "modernbert", "roformer", "gptj", "falcon", "bert", "gpt2")  # fmt: skip
SLOW = [each for each in FAMILIES if each not in (*QUICK, "hrm_text")]  # its layers run in turns
CASES = [*QUICK, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW)]


def model_of(family):
    model = any_tiny_model(family)
    with torch.no_grad():  # so that scores matter
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return model


@contextmanager
def softmaxes():
    """What each softmax of a forward gets, seen without anything of ropewalk."""
    inputs = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax):
                inputs.append(args[0])
            return func(*args, **(kwargs or {}))

    with Mode():
        yield inputs


@torch.no_grad()
def own(model):
    """The model's scores before the softmax and its attention, by layer."""
    model.config._attn_implementation_internal = "eager"
    S = len(IDS)
    with softmaxes() as inputs:
        returned = model(input_ids=IDS[None], output_attentions=True)
    return [x[0, ..., :S] for x in inputs if x.ndim == 4 and x.shape[-2] == S], returned.attentions


@pytest.mark.parametrize("family", QUICK)
def test_parts_sum_to_the_scores_of_the_model(family):
    """Up to a constant of each query, which a model may subtract before its softmax."""
    model = model_of(family)
    found = tools.attention(model, IDS)
    scores, weights = own(model)
    assert len(found.layers) == len(scores) == len(weights) > 1
    for layer, right, attended in zip(found.layers, scores, weights, strict=True):
        for head in range(len(right)):
            torch.testing.assert_close(layer.weights(head), attended[0, head], rtol=1e-4, atol=1e-5)
            for query in (0, 7, 39):
                seen = layer.visible[query].nonzero().flatten().tolist()
                parts = torch.stack([layer.contributions(head, query, key).sum() for key in seen])
                if layer.cap is not None:
                    parts = layer.cap * (parts / layer.cap).tanh()
                theirs = right[head, query, seen].double()
                apart = (parts - parts.mean()) - (theirs - theirs.mean())
                assert apart.abs().max() < 1e-5 * max(1, theirs.abs().max())


@pytest.mark.parametrize("family", CASES)
def test_every_layer_with_a_rope_is_split(family):
    """That the weights follow from the parts is checked by `attention` itself."""
    model = model_of(family)
    found = tools.attention(model, IDS)
    ropes = [None] * len(found.layers)
    if family not in ("bert", "gpt2"):
        layers = ModelSpec.from_config(model.config).layers
        ropes = [layers[layer.layer].rope for layer in found.layers]
        missing = {i for i, layer in enumerate(layers) if layer.rope}
        missing -= {layer.layer for layer in found.layers}
        assert missing == ({2} if family == "deepseek_v4" else set())  # its keys are compressed
    for layer, rope in zip(found.layers, ropes, strict=True):
        assert (layer.unsplit is None) == (rope is not None)
        assert len(layer.wavelengths) == (0 if rope is None else rope.pairs)


def test_half_precision_is_split_too():
    """Fails if the rounding of a model in bfloat16 counts as another source of its scores."""
    found = tools.attention(model_of("llama").bfloat16(), IDS)
    assert {layer.unsplit for layer in found.layers} == {None}


@settings(max_examples=30, deadline=None)
@given(
    pairing=st.sampled_from(["half", "interleaved"]),
    rotary=st.sampled_from([8, 16]),
    start=st.sampled_from([0, 8]),
    seed=st.integers(0, 9),
)
def test_a_part_is_a_cosine_of_the_distance(pairing, rotary, start, seed):
    """|q| |k| cos(angle between them + frequency · distance), for each pair, the slowest first."""
    spec = RotarySpec(head_dim=24, rotary_dim=rotary, start=start, pairing=pairing, theta=100.0)
    S, generator = 12, torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 1, S, 24, generator=generator)
    cos, sin = RotaryEmbedding(spec).tables(torch.arange(S))
    turned = [rotate(x, cos, sin, pairing=pairing, start=start) for x in (q, k)]
    scores = turned[0] @ turned[1].mT * 0.3
    attended = Attended(*turned, 0.3, None, None, None, scores.softmax(-1))
    layer = layer_of(0, None, Rope(spec), attended)
    assert layer.unsplit is None
    frequencies = spec.inverse_frequencies().flip(0).tolist()
    assert layer.wavelengths == pytest.approx([math.tau / f for f in frequencies])
    at = torch.arange(spec.rotary_dim // 2).flip(0)
    pairs = (at, at + rotary // 2) if pairing == "half" else (2 * at, 2 * at + 1)
    one, two = (torch.complex(*(x[0, 0, :, start + p] for p in pairs)) for x in (q, k))
    for query, key in ((11, 0), (3, 7)):
        turns = torch.tensor(frequencies) * (query - key)
        product = one[query] * two[key].conj()
        right = 0.3 * product.abs() * (product.angle() + turns).cos()
        parts = layer.contributions(0, query, key)[:-1].float()
        torch.testing.assert_close(parts, right, atol=1e-5, rtol=1e-4)


def planted():
    """A model whose first head looks at the previous token, by all its pairs."""
    width, heads, D = 32, 4, 8
    shape = TransformerShape(50, width, heads, 64, encoder_layers=0, decoder_layers=1)
    torch.manual_seed(1)
    encoding = build("rotary(theta=100)", shape.stack_shape(causal=True))
    model = LanguageModel(shape, encoding, causal=True)
    attention = model.layers[0].attention
    angles = encoding.for_layer(0).rope.spec.inverse_frequencies()
    with torch.no_grad():
        attention.query.weight.mul_(4)
        attention.query.weight[:D], attention.key_value.weight[:D] = 0, 0
        attention.query.bias[:D] = 6 * torch.tensor([1.0] * 4 + [0.0] * 4)
        attention.key_value.bias[:D] = 6 * torch.cat([angles.cos(), angles.sin()]).float()
    return model


def test_a_head_of_the_previous_token_stands_first_and_falls_without_its_fast_pairs():
    found = tools.attention(planted(), IDS % 50)
    layer = found.layers[0]
    assert found.positional()[0] == (0, 0)
    head = layer.heads[0]
    assert head.position_share > 0.999
    assert head.distance == 1
    assert all(other.position_share < 0.5 for other in layer.heads[1:])
    one = torch.arange(1, 40)
    assert layer.weights(0)[one, one - 1].mean() > 0.9
    fast, slow = range(2, 4), range(2)
    assert layer.weights(0, without=fast)[one, one - 1].mean() < 0.5
    assert layer.weights(0, without=slow)[one, one - 1].mean() > 0.7


def test_a_band_that_is_left_out_is_missing_and_nothing_else():
    layer = tools.attention(model_of("gpt_neox"), IDS).layers[1]
    for band in (range(1), range(1, 2), range(2)):
        apart = layer.scores(2) - layer.scores(2, without=band)
        parts = layer.contributions(2, 20, 5)
        assert float(apart[20, 5]) == pytest.approx(
            float(parts[band.start : band.stop].sum()), abs=1e-5
        )


def test_means_by_distance_are_those_of_the_scores():
    spec = RotarySpec(head_dim=8)
    q, k = torch.randn(2, 1, 2, 20, 8, generator=torch.Generator().manual_seed(1))
    at = torch.arange(20)
    away = at[:, None] - at
    mask = torch.zeros(20, 20).masked_fill((away < 0) | (away > 6), -torch.inf)  # a window
    weights = (q @ k.mT + mask).softmax(-1)
    layer = layer_of(0, None, Rope(spec), Attended(q, k, 1.0, None, mask, None, weights))
    distances, means = layer.by_distance(1)
    assert distances.tolist() == list(range(7))
    for distance, mean in zip(distances.tolist(), means.tolist(), strict=True):
        right = (q @ k.mT)[0, 1].diagonal(-distance).mean()
        assert mean == pytest.approx(float(right), abs=1e-5)


def test_scores_of_another_source_are_not_split():
    """Fails if a bias, such as ALiBi's, is taken for a part of a pair."""
    spec = RotarySpec(head_dim=8)
    q, k = torch.randn(2, 1, 2, 20, 8, generator=torch.Generator().manual_seed(1))
    bias = -torch.arange(20.0).abs()
    weights = (q @ k.mT + bias).softmax(-1)
    layer = layer_of(0, None, Rope(spec), Attended(q, k, 1.0, None, None, None, weights))
    assert "does not follow" in layer.unsplit
    assert layer.wavelengths == ()
    torch.testing.assert_close(layer.weights(1), weights[0, 1], rtol=1e-4, atol=1e-6)


def test_the_model_is_as_before_and_a_short_text_has_no_measure():
    model = model_of("llama")
    before = model.config._attn_implementation, model.training, dict(model.state_dict())
    found = tools.attention(model.train(), IDS[:5])
    assert {head.position_share for layer in found.layers for head in layer.heads} == {None}
    assert model.training
    assert model.config._attn_implementation == before[0]
    assert all(torch.equal(x, before[2][name]) for name, x in model.state_dict().items())


@pytest.mark.parametrize(
    ("ids", "error", "match"),
    [
        (IDS[:1], ValueError, "at least 2 tokens"),
        (IDS[None], ValueError, "at least 2 tokens"),
        (IDS.float(), TypeError, "tensor of integers"),
        ([1, 2], TypeError, "tensor of integers"),
        (IDS + 100, ValueError, "ids"),
    ],
)
def test_bad_ids_are_named(ids, error, match):
    with pytest.raises(error, match=match):
        tools.attention(model_of("llama"), ids)


def test_a_text_beyond_the_memory_is_refused_with_the_length_that_fits(monkeypatch):
    module = sys.modules["ropewalk.tools.attention.attention"]
    monkeypatch.setattr(module, "available_memory", lambda device: 100_000)
    with pytest.raises(ValueError, match=r"ids must be at most (\d+) tokens") as refused:
        tools.attention(model_of("llama"), IDS)
    most = int(str(refused.value).partition("most ")[2].split()[0])
    assert 2 < most < 40
    tools.attention(model_of("llama"), IDS[:most])


@pytest.mark.parametrize("place", [(4, 0, 0), (0, 40, 0), (0, 0, -1)])
def test_a_head_or_token_that_is_not_there_is_named(place):
    layer = tools.attention(model_of("llama"), IDS).layers[0]
    with pytest.raises(ValueError, match="must be"):
        layer.contributions(*place)
    with pytest.raises(ValueError, match="without must be below 8"):
        layer.scores(0, without=range(7, 9))
