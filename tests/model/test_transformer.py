"""The encoder-decoder, its caches and its first parameters, with each encoding.

These fail if the future reaches the past; if cached decoding, in steps of any size and with rows
reordered, differs from computing everything again; if beams see each other; if maps are not
probabilities, or are computed without a request; if word order matters without an encoding; and if
a parameter's first value depends on more than its name and the seed, or its name changes.

Dropout: which elements it keeps, how often, and only in training.

These fail if the share is wrong, if elements that share a random draw are dropped together, if
values that are kept are not scaled, if evaluation changes anything, or if a seed does not repeat.
"""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from encoding_cases import LINEAR_KINDS, close, new_model, random, recorded, words
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ropewalk.encodings import StackShape
from ropewalk.encodings.absolute import PositionTable
from ropewalk.model import (
    Attention,
    AttentionMaps,
    KeyValueCache,
    Transformer,
    TransformerShape,
    initialize,
    softmax_attention,
)
from ropewalk.model.transformer import Dropout

ENCODINGS = [
    "none",
    "sinusoidal",
    "learned(max_positions=32)",
    "rotary",
    "rotary(rotary_dim=4, pairing=interleaved)",
    "rotary(cross=True)",
]
SHAPE = TransformerShape(20, 32, 4, 48, encoder_layers=2, decoder_layers=2, kv_heads=2)

encodings = st.sampled_from(ENCODINGS)
kinds = st.sampled_from(["softmax", *LINEAR_KINDS])
seeds = st.integers(0, 2**32 - 1)


def build_model(
    encoding: str = "rotary", shape: TransformerShape = SHAPE, seed: int = 0
) -> Transformer:
    return new_model(encoding, shape, seed).double().eval()


def of_kind(kind: str, encoding: str, seed: int = 0) -> Transformer:
    return build_model(encoding, replace(SHAPE, attention=kind), seed)


@given(
    encodings,
    kinds,
    st.lists(st.integers(1, 4), min_size=8, max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    seeds,
)
@settings(max_examples=20)
@torch.no_grad()
def test_decoding_on_a_cache_equals_computing_all_anew(encoding, kind, steps, rows, seed):
    """Rows that are selected go on as if they had been there from the start."""
    model, source, target = of_kind(kind, encoding, seed), words(3, 5), words(3, 8, seed=seed)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    whole, memory = model(source, target, mask), model.encode(source, mask)
    cache = model.shape.new_cache(2)
    assert cache.length == 0
    while (past := cache.length) < 8:
        new = target[:, past:][:, : steps.pop()]
        close(model.decode(new, memory, mask, cache), whole[:, past : past + new.shape[1]])
        if past == 0:
            rows = torch.tensor(rows)
            cache.select(rows)
            target, whole, memory, mask = (x[rows] for x in (target, whole, memory, mask))


@given(encodings, kinds, st.integers(2, 4), st.data(), seeds)
@settings(max_examples=8)
@torch.no_grad()
def test_beams_go_on_from_what_they_follow_and_see_nothing_else(encoding, kind, beams, data, seed):
    model, source = of_kind(kind, encoding), words(3, 5, seed=seed)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    memory, cache = model.encode(source, mask), model.shape.new_cache(2, branching=True)
    prefixes = words(3, 1, seed=seed)[..., None]  # (B, beams, steps)
    places = []

    def places_of_keys():
        kept = [each for each in cache.own + cache.memory if isinstance(each, KeyValueCache)]
        return [keys.held()[0].data_ptr() for keys in kept]

    for step in range(5):
        hidden = model.decode(prefixes[..., -1], memory, mask, cache)
        assert cache.length == step + 1
        for i in range(prefixes.shape[1]):
            close(hidden[:, i], model(source, prefixes[:, i], mask)[:, -1])
        if step == 2:
            rows = torch.tensor([2, 0])  # the second sentence has ended
            cache.select(rows)
            source, memory, mask, prefixes = (x[rows] for x in (source, memory, mask, prefixes))
        choice = st.lists(st.integers(0, prefixes.shape[1] - 1), min_size=beams, max_size=beams)
        parents = torch.tensor([data.draw(choice) for _ in prefixes])
        cache.follow(parents)
        if step == 0:
            places = places_of_keys()
        followed = prefixes.gather(1, parents[..., None].expand(-1, -1, step + 1))
        new = words(len(prefixes), beams, seed=seed + step + 1)[..., None]
        prefixes = torch.cat([followed, new], -1)
        if step == 1:  # nothing is copied to reorder beams
            assert places_of_keys() == places


# The encoder-decoder


@given(encodings, kinds, st.integers(0, 6), seeds)
@settings(max_examples=15)
@torch.no_grad()
def test_the_future_does_not_reach_the_past(encoding, kind, changed, seed):
    model, source, target = of_kind(kind, encoding), words(2, 4, seed=seed), words(2, 7, seed=seed)
    other = target.clone()
    other[:, changed] = target[:, changed] % 15 + 5  # another word
    before, after = model(source, target), model(source, other)
    close(after[:, :changed], before[:, :changed], 1e-12)
    moved = (after - before).abs().amax((0, 2))
    assert (moved[changed:] > 1e-7).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_word_order_is_seen_only_with_an_encoding(encoding):
    """Attention without positions sees a bag of words: a shuffled source is the same memory."""
    model, source, order = build_model(encoding), words(1, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    moved = (model.encode(source[:, order]) - model.encode(source)[:, order]).abs().max()
    assert moved < 1e-10 if encoding == "none" else moved > 1e-3


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_maps_are_the_probabilities_of_the_same_pass(encoding):
    model, source, target = build_model(encoding), words(2, 5), words(2, 4)
    collected = AttentionMaps([], [], [])
    memory = model.encode(source, maps=collected.encoder)
    output = model.decode(target, memory, maps=(collected.decoder, collected.cross))
    close(output, model(source, target))
    maps = model.attention_maps(source, target)
    shapes = {"encoder": (2, 4, 5, 5), "decoder": (2, 4, 4, 4), "cross": (2, 4, 4, 5)}
    for name, shape in shapes.items():
        layers = getattr(maps, name)
        assert [tuple(p.shape) for p in layers] == [shape] * 2
        for p, same in zip(layers, getattr(collected, name), strict=True):
            assert torch.equal(p, same)
            assert (p >= 0).all()
            close(p.sum(-1), torch.ones(p.shape[:-1], dtype=p.dtype))
    assert all((p.triu(1) == 0).all() for p in maps.decoder)
    assert all((p > 0).all() for p in maps.encoder + maps.cross)


def test_one_table_serves_source_target_and_output():
    model = build_model("none")
    tables = [n for n, p in model.named_parameters() if p.shape[0] == SHAPE.vocabulary]
    assert tables == ["embedding.weight"]
    hidden = random(2, 3, 32)
    close(model.logits(hidden), hidden @ model.embedding.weight.T, 1e-12)
    attention = (
        32 * 32 * 2 + 32 * 2 + 32 * 32 + 32
    )  # query and output, two heads of keys and values
    layer = attention + 2 * 32 * 48 + 48 + 32
    norms = 2 * 32 * (2 * 2 + 2 * 3 + 2)
    total = 20 * 32 + 2 * layer + 2 * (layer + attention) + norms
    assert sum(p.numel() for p in model.parameters()) == total


def test_embeddings_are_scaled_by_the_root_of_the_width(monkeypatch):
    model, seen = build_model("none"), []
    monkeypatch.setattr(model.encoder_encoding, "embed", lambda x, p: seen.append((x, p)) or x)
    model.encode(torch.tensor([[7, 8, 9]]))
    close(seen[0][0][0], model.embedding.weight[7:10] * 32**0.5, 1e-12)
    assert seen[0][1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("encoding", "kind", "most"),
    [
        ("sinusoidal", "softmax", 0.02),
        ("rotary(cross=True)", "softmax", 0.02),
        ("rotary", "elu", 0.03),
        ("rotary", "performer", 0.03),
    ],
)
def test_training_in_bfloat16_is_close_to_float32(encoding, kind, most):
    model, source, target = of_kind(kind, encoding).float().train(), words(4, 6), words(4, 5)
    gradients, outputs = [], []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            outputs.append(model(source, target, source != 19))
        outputs[-1].square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    exact, rough = (x.flatten().double() for x in outputs)
    assert 1e-5 < (rough - exact).norm() / exact.norm() < most
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99
    assert (gradients[0] - gradients[1]).norm() > 0


def test_the_names_of_parameters_are_those_of_checkpoints():
    """Long trainings are resumed from files that name parameters so."""
    linear, norm = ["weight", "bias"], ["weight", "bias"]
    names = ["embedding.weight"]
    for stack, attentions in (("encoder", ["attention"]), ("decoder", ["attention", "cross"])):
        for layer, attention in itertools.product(range(2), [*attentions, "feed_forward"]):
            parts = ["query", "key_value", "output"]
            if attention == "feed_forward":
                parts = ["inner", "outer"]
            names += [f"{stack}.{layer}.{attention}_norm.{leaf}" for leaf in norm]
            names += [
                f"{stack}.{layer}.{attention}.{part}.{leaf}" for part in parts for leaf in linear
            ]
    names += [f"{stack}_norm.{leaf}" for stack in ("encoder", "decoder") for leaf in norm]
    for encoding in ("none", "sinusoidal", "rotary", "rotary(cross=True)"):
        assert list(build_model(encoding).state_dict()) == names
    tables = {f"{stack}_encoding.table.weight" for stack in ("encoder", "decoder")}
    assert set(build_model("learned").state_dict()) == {*names, *tables}


def test_a_stack_shape_follows_from_the_sizes():
    shape = replace(SHAPE, encoder_layers=3, kv_heads=None)
    assert shape.stack_shape(causal=False) == StackShape(3, 4, 4, 8, 32, causal=False)
    assert SHAPE.stack_shape(causal=True) == StackShape(2, 4, 2, 8, 32, causal=True)


def test_probabilities_are_formed_on_request_alone(monkeypatch):
    model, source = build_model(), words(2, 4)
    expected = model(source, source)

    def refuse(*arguments: object) -> None:
        raise AssertionError("probabilities formed")

    monkeypatch.setattr(softmax_attention, "attention_probabilities", refuse)
    assert torch.equal(model(source, source), expected)
    assert Attention(32, 4)(torch.zeros(1, 2, 32)).probabilities is None
    with pytest.raises(AssertionError, match="probabilities formed"):
        model.attention_maps(source, source)


def test_what_each_sublayer_gives_is_dropped_once(monkeypatch):
    model, source = build_model(shape=replace(SHAPE, dropout=0.3)), words(2, 4)
    drawn = recorded(monkeypatch, Dropout, "_mask")
    model.train()(source, source)
    assert [x.shape for _, x in drawn] == [(2, 4, 32)] * (
        1 + 2 * 2 + 1 + 2 * 3
    )  # embeddings and sublayers of each stack


def test_a_transformer_drops_in_training_alone():
    model, source = build_model(shape=replace(SHAPE, dropout=0.3)), words(2, 4)
    assert torch.equal(model(source, source), model(source, source))
    assert torch.equal(model(source, source), build_model()(source, source))
    model.train()
    assert not torch.equal(model(source, source), model(source, source))


# Initial parameters


def test_a_parameter_depends_on_seed_and_name_alone():
    small, large = build_model("none"), build_model("learned", replace(SHAPE, decoder_layers=3))
    torch.manual_seed(99)
    again, other = build_model("none"), build_model("none", seed=1)
    everything = dict(large.named_parameters())
    for name, parameter in small.named_parameters():
        assert torch.equal(parameter, everything.pop(name)), name
        assert torch.equal(parameter, dict(again.named_parameters())[name]), name
        if parameter.ndim == 2:
            assert not torch.equal(parameter, dict(other.named_parameters())[name]), name
    assert {n.split(".")[0] for n in everything} == {
        "encoder_encoding",
        "decoder_encoding",
        "decoder",
    }
    drawn = [p.flatten()[:8] for p in large.parameters() if p.ndim == 2]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))


def test_initial_values_have_the_spread_that_is_documented():
    model = build_model("learned(max_positions=99)", TransformerShape(500, 64, 4, 256, 1, 1))
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            weight = module.weight
            inwards = module.in_features if isinstance(module, nn.Linear) else 64
            # Words are scaled by sqrt(width) in the model: positions start at their size.
            inwards = 1 if isinstance(module, PositionTable) else inwards
            spread = weight.std().item() * inwards**0.5
            assert abs(spread - 1) < 4 / weight.numel() ** 0.5, name
            assert abs(weight.mean().item()) * inwards**0.5 < 4 / weight.numel() ** 0.5, name
            assert getattr(module, "bias", None) is None or (module.bias == 0).all()


def test_initialize_replaces_whatever_was_there():
    first, second = build_model("learned"), build_model("learned")
    for parameter in second.parameters():
        nn.init.constant_(parameter, 7.0)
    initialize(second.float(), 0)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a.float(), b)


@given(
    st.lists(st.integers(0, 7), max_size=3),
    st.sampled_from([0.1, 0.5, 0.9, 1 - 2**-20]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_dropout_keeps_or_drops_each_element(shape, p, dtype):
    x = torch.full(shape, 3.0, dtype=dtype)
    out = Dropout(p)(x)
    assert out.shape == x.shape
    assert out.dtype == dtype
    kept = x * torch.tensor(1 / (1 - p), dtype=dtype)
    assert ((out == 0) | (out == kept)).all()


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9, 0.9999999])
def test_dropout_drops_the_share_that_it_is_told(p):
    n = 1_000_001
    dropped = Dropout(p)(torch.ones(n)) == 0
    met = min(p, 1 - 2**-16)
    spread = (met * (1 - met) / n) ** 0.5
    assert abs(dropped.double().mean().item() - p) <= 5 * spread + 2**-16
    for apart in (1, 2, 3, 4):  # neighbors share a draw, and must not share their fate
        both = (dropped[apart:] & dropped[:-apart]).double().mean().item()
        assert abs(both - p * p) <= 5 * spread + 2**-15
    lanes = dropped[: n // 4 * 4].view(-1, 4).double().mean(0)
    assert ((lanes - p).abs() <= 10 * spread + 2**-16).all()


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0), Dropout(0).train()])
def test_dropout_does_nothing_out_of_training_or_at_zero(dropout):
    x, residual = random(2, 3), random(2, 3, seed=1)
    assert dropout(x) is x
    assert torch.equal(dropout.add(residual, x), residual + x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_is_added_in_the_dtype_of_the_residual(dtype):
    dropout, residual, x = Dropout(0.25), random(3, 7).float(), random(3, 7, seed=1).to(dtype)
    torch.manual_seed(1)
    out = dropout.add(residual, x)
    torch.manual_seed(1)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, residual + dropout(x.float()))


def test_the_gradient_passes_where_elements_do():
    x, residual = random(5, 7).requires_grad_(), random(5, 7, seed=1).requires_grad_()
    torch.manual_seed(1)
    Dropout(0.25).add(residual, x).sum().backward()
    torch.manual_seed(1)
    assert torch.equal(x.grad, Dropout(0.25)(torch.ones(5, 7, dtype=x.dtype)))
    assert torch.equal(residual.grad, torch.ones_like(residual))


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(p):
    with pytest.raises(ValueError, match=re.escape(f"p must lie in [0, 1), got {p}")):
        Dropout(p)
