"""`usage` on models of ropewalk, against what their weights say and heads that were planted.

These fail if norms are not those of the projections, if the pairing changes them, if a head of
known kind gets another name, if the loss without rotation is not that of a model that does not
rotate, or if anything in the model differs afterwards.
"""

import json

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import tools
from ropewalk.encodings import build
from ropewalk.model import LanguageModel, Transformer, TransformerShape
from ropewalk.tools.usage.head_usage import Attending, kind_of
from ropewalk.tools.usage.usage import interval

WIDTH, HEADS, D, VOCABULARY = 32, 4, 8, 50


def model_of(encoding="rotary(theta=100)", layers=2, kv_heads=None, causal=True):
    counts = {"encoder_layers": 0, "decoder_layers": layers}
    if not causal:
        counts = {"encoder_layers": layers, "decoder_layers": 0}
    shape = TransformerShape(VOCABULARY, WIDTH, HEADS, 64, kv_heads=kv_heads, **counts)
    torch.manual_seed(1)
    model = LanguageModel(shape, build(encoding, shape.stack_shape(causal=causal)), causal=causal)
    with torch.no_grad():
        for layer in model.layers:  # so that scores matter
            layer.attention.query.weight.mul_(4)
            layer.attention.query.bias.normal_()
            layer.attention.key_value.bias.normal_()
    return model


def text(rows=16, length=32):
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(2))


def like(model, encoding, **fields):
    other = model_of(encoding, **fields)
    other.load_state_dict(model.state_dict())
    return other


@torch.no_grad()
def loss_of(model, tokens):
    logits = model.eval().logits(model(tokens))[:, :-1]
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").double()


@torch.no_grad()
def test_norms_are_those_of_the_projections():
    model, tokens = model_of(kv_heads=2), text()
    layer = model.layers[0]
    x = layer.attention_norm(model.embedding(tokens) * WIDTH**0.5)
    q = layer.attention.query(x).unflatten(-1, (HEADS, D))
    k = layer.attention.key_value(x)[..., : 2 * D].unflatten(-1, (2, D))
    found = tools.usage(model, tokens, fractions=()).layers[0]
    for held, norms, heads in ((q, found.q_norms, HEADS), (k, found.k_norms, 2)):
        for head in range(heads):
            for pair in range(D // 2):
                both = held[..., head, pair] ** 2 + held[..., head, pair + D // 2] ** 2
                assert norms[head][pair] == pytest.approx(both.mean().sqrt().item(), rel=1e-5)
    for head in range(HEADS):
        both = zip(found.q_norms[head], found.k_norms[head // 2], strict=True)
        assert found.products[head] == pytest.approx([a * b for a, b in both], rel=1e-9)
    turns = [2 * torch.pi * 100 ** (i / 4) for i in range(4)]
    assert found.wavelengths == pytest.approx(turns, rel=1e-9)


def test_the_amplitude_is_in_the_norms():
    """Fails if YaRN's factor of cos and sin, which q and k enter the scores with, is left out."""
    rule = "rotary(theta=100,rule=yarn,factor=8,original_length=16)"
    plain, yarn = model_of(layers=1), model_of(rule, layers=1)
    one, other = (tools.usage(each, text(), fractions=()).layers[0] for each in (plain, yarn))
    ratio = other.q_norms[0][0] / one.q_norms[0][0]
    assert ratio == pytest.approx(yarn.encoding.for_layer(0).rope.spec.amplitude_at())
    assert ratio > 1.1


def permuted(model):
    """The same model with interleaved pairs: dimensions i and i + D/2 become 2i and 2i + 1."""
    other = like(model, "rotary(theta=100,pairing=interleaved)")
    order = torch.arange(D).view(2, -1).T.flatten()
    with torch.no_grad():
        for layer in other.layers:
            for linear in (layer.attention.query, layer.attention.key_value):
                for x in (linear.weight, linear.bias):
                    part = x[: HEADS * D].unflatten(0, (HEADS, D))
                    part.copy_(part[:, order].clone())
    return other


def test_both_pairings_of_the_same_weights_give_the_same_table():
    model = model_of()
    one, other = (tools.usage(each, text()) for each in (model, permuted(model)))
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        for name in ("q_norms", "k_norms", "products"):
            both = torch.tensor(getattr(mine, name)), torch.tensor(getattr(theirs, name))
            torch.testing.assert_close(*both, rtol=1e-5, atol=1e-6)
        for a, b in zip(mine.heads, theirs.heads, strict=True):
            assert a.position_share == pytest.approx(b.position_share, rel=1e-3)
            assert (a.kind, a.distance) == (b.kind, b.distance)
    for a, b in zip(one.costs, other.costs, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-5)


def test_a_head_of_the_previous_token_is_found():
    """Fails if the distance counts the wrong way round, or from 1."""
    model = model_of("rotary(theta=100)", layers=1)
    attention = model.layers[0].attention
    angles = model.encoding.for_layer(0).rope.spec.inverse_frequencies()
    back = torch.cat([angles.cos(), angles.sin()]).float()  # turned by one step
    with torch.no_grad():
        attention.query.weight[:D], attention.key_value.weight[:D] = 0, 0
        attention.query.bias[:D] = 6 * torch.tensor([1.0] * 4 + [0.0] * 4)
        attention.key_value.bias[:D] = 6 * back
    head = tools.usage(model, text(), fractions=()).layers[0].heads[0]
    assert (head.distance, head.kind) == (1, "position")
    assert head.at_distance > 0.5


def test_scores_that_hardly_vary_explain_nothing():
    model = model_of(layers=1)
    with torch.no_grad():
        model.layers[0].attention.query.weight.zero_()
        model.layers[0].attention.query.bias.zero_()
    head = tools.usage(model, text(), fractions=()).layers[0].heads[0]
    assert (head.position_share, head.kind) == (None, None)
    assert head.at_distance < 0.1


@pytest.mark.parametrize("causal", [True, False])
def test_the_share_is_that_of_a_least_squares_fit(causal):
    """Fails if distances with more scores count more, or if the level of a query is explained."""
    S = 16
    scores = torch.randn(2, 3, S, S) + torch.linspace(0, 3, S)  # later keys attract
    scores = scores + torch.randn(2, 3, S, 1) * 5
    if causal:
        scores = scores.masked_fill(torch.ones(S, S).triu(1).bool(), -torch.inf)
    attending = Attending(S, causal)
    for row in scores.softmax(-1).split(1):
        attending.add(row)
    queries, distances = (range(8, 16), range(8)) if causal else (range(4, 12), range(-4, 5))
    points = [(b, i, d) for b in range(2) for i in queries for d in distances]
    of_query = dummies([(b, i) for b, i, _ in points])
    both = torch.cat([of_query, dummies([d for *_, d in points])], 1)
    for head, found in enumerate(attending.heads()):
        y = torch.tensor([scores[b, head, i, i - d] for b, i, d in points]).double()
        explained = 1 - unexplained(y, both) / unexplained(y, of_query)
        assert found.position_share == pytest.approx(explained, abs=1e-4)


def dummies(groups):
    names = list(dict.fromkeys(groups))
    return torch.tensor([[float(each == name) for name in names] for each in groups]).double()


def unexplained(y, x):
    fit = torch.linalg.lstsq(x, y[:, None], driver="gelsd").solution[:, 0]
    return float((y - x @ fit).square().sum())


def test_probabilities_of_float16_lose_little():
    """Fails if they are cut at 6e-5, the smallest normal number: many are smaller."""
    S = 64
    torch.manual_seed(0)
    away = torch.arange(S)[:, None] - torch.arange(S)
    scores = 2.5 * torch.randn(2, 4, S, S) - 3 * away.clamp(min=1).log()
    exact = scores.masked_fill(away < 0, -torch.inf).softmax(-1)
    shares = []
    for probabilities in (exact.double(), exact.half()):
        attending = Attending(S, causal=True)
        attending.add(probabilities)
        shares.append(torch.tensor([head.position_share for head in attending.heads()]))
    assert (exact < 6e-5).double().mean() > 0.3
    assert torch.allclose(*shares, atol=0.02)


def test_names_need_their_thresholds():
    assert kind_of(0.5, 0.1, 0.0) == "position"
    assert kind_of(0.2, 0.6, 0.0) == "position"  # one distance, whatever else varies
    assert kind_of(0.49, 0.49, 0.0) is None
    assert kind_of(0.1, 0.1, 0.2) == "content"
    assert kind_of(0.01, 0.1, 0.9) is None  # rests on the first token
    assert kind_of(None, 0.1, 0.0) is None


def test_the_loss_of_the_model_as_it_is_does_not_change_by_a_bit():
    model, tokens = model_of(), text()
    found = tools.usage(model, tokens)
    first = found.costs[0]
    assert first.loss == loss_of(model, tokens).mean().item()
    assert (first.fraction, first.difference, first.low, first.high) == (1.0, 0.0, 0.0, 0.0)
    assert found.losses == 16 * 31


@pytest.mark.parametrize(
    ("fraction", "encoding"),
    [(0, "none"), (0.5, "rotary(theta=100,rule=proportional,fraction=0.5)"), (0.2, "none")],
)
def test_stopped_pairs_cost_what_a_model_without_them_loses(fraction, encoding):
    model, tokens = model_of(), text()
    cost = tools.usage(model, tokens, fractions=(fraction,)).costs[1]
    other = loss_of(like(model, encoding), tokens)
    difference = other - loss_of(model, tokens)
    assert cost.loss == pytest.approx(other.mean().item(), abs=1e-6)
    assert cost.difference == pytest.approx(difference.mean().item(), abs=1e-6)
    assert cost.low < cost.difference < cost.high


def test_intervals_cover_as_often_as_they_say():
    """Fails if neighbors count as independent: such intervals would be far too narrow."""
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for _ in range(200):
        noise = torch.randn(60, 4, generator=generator).double().repeat_interleave(8, 1)
        low, high = interval(noise)
        inside += low <= 0 <= high
    assert 0.88 <= inside / 200 <= 0.99


def test_a_model_that_looks_ahead_has_heads_but_no_loss():
    found = tools.usage(model_of(causal=False), text())
    assert found.costs == ()
    assert found.unmeasured == ("the loss: the model does not predict the next token",)
    assert all(head.position_share is not None for layer in found.layers for head in layer.heads)


def test_masked_tokens_are_the_targets_of_a_model_that_looks_ahead():
    model, tokens = model_of(causal=False), text()
    targets = torch.where(torch.rand(tokens.shape) < 0.2, tokens, -1)
    found = tools.usage(model, tokens.where(targets < 0, 7), targets=targets, fractions=(0,))
    with torch.no_grad():
        logits = model.eval().logits(model(tokens.where(targets < 0, 7)))
    expected = cross_entropy(logits[targets >= 0], targets[targets >= 0]).item()
    assert found.costs[0].loss == pytest.approx(expected, abs=1e-5)
    assert found.losses == int((targets >= 0).sum())
    assert found.unmeasured == ()


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_it_was(fails, monkeypatch):
    model, tokens = model_of().train(), text()
    model.layers[1].eval()
    site = model.encoding.for_layer(0)
    site.rotate = rotate = site.rotate  # a user's own, on the object
    if fails:
        monkeypatch.setattr(Attending, "add", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tools.usage(model, tokens)
    else:
        tools.usage(model, tokens)
    assert [layer.training for layer in model.layers] == [True, False]
    assert vars(site)["rotate"] is rotate
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_one_row_and_plain_data():
    found = tools.usage(model_of(), text(1, 352).flatten(), fractions=(0.5, 0))
    assert (found.rows, found.length) == (1, 352)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["layers"][1]["heads"][3].keys() >= {"position_share", "kind"}
    assert [cost["rotating"] for cost in plain["costs"]] == [[4, 4], [2, 2], [0, 0]]
    assert found.named("position") == tuple(
        (layer.layer, at)
        for layer in found.layers
        for at, head in enumerate(layer.heads)
        if head.kind == "position"
    )


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("tokens", torch.zeros(16, 32), "tokens must be a tensor of integer ids"),
        ("tokens", [[1, 2]], "tokens must be a tensor of integer ids"),
        ("tokens", torch.zeros(16, 8).long(), "at least 16 tokens in a row"),
        ("tokens", torch.zeros(2, 32).long(), "at least 10 blocks of 32 predicted tokens, got 2"),
        ("tokens", torch.full((16, 32), 50), "tokens must be ids from 0 to 49, got 50"),
        ("tokens", torch.full((16, 32), -1), "tokens must be ids from 0 to 49, got -1"),
        ("targets", torch.zeros(16, 32), "targets must be a tensor of integer ids"),
        ("targets", torch.zeros(16, 31).long(), r"targets must have the shape \(16, 32\) of token"),
        ("targets", torch.full((16, 32), -1), "an id of at least 0"),
        ("targets", torch.full((16, 32), 50), "targets must be ids from 0 to 49, got 50"),
    ],
)
def test_wrong_ids_are_refused(name, ids, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tools.usage(model_of(), **{"tokens": text(), name: ids})


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("alibi", "must have a rope in its attention, got the encoding Alibi"),
        ("none", "must have a rope in its attention"),
        ("rotary(learned=True)", "must have fixed frequencies, got learned ones"),
    ],
)
def test_models_without_a_rope_are_refused(encoding, message):
    with pytest.raises(ValueError, match=f"(?i){message}"):
        tools.usage(model_of(encoding), text())


def test_other_arguments_are_refused(monkeypatch):
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        tools.usage("llama", text())
    with pytest.raises(TypeError, match="LanguageModel of ropewalk or a language model"):
        tools.usage(torch.nn.Linear(2, 2), text())
    shape = TransformerShape(50, 32, 4, 64, encoder_layers=1, decoder_layers=1)
    both = [build("rotary", shape.stack_shape(causal=causal)) for causal in (False, True)]
    with pytest.raises(TypeError, match="got Transformer"):
        tools.usage(Transformer(shape, *both), text())
    with pytest.raises(ValueError, match=r"fractions must be at most 1, all pairs, got 1\.5"):
        tools.usage(model_of(), text(), fractions=(1.5,))
    monkeypatch.setattr("ropewalk.machine.available_memory", lambda device: 1000)
    with pytest.raises(ValueError, match="tokens must have shorter rows"):
        tools.usage(model_of(), text())
