"""Encodings that add to the scores by position alone: ALiBi, T5, KERPLE, FIRE and TUPE.

Each is compared with a plain loop over positions, written from its paper, and with other code if
there is any. These fail if a slope, a bucket, a kernel or a sign is wrong, if a bias is added
before the scale, if cached decoding, padding or packing change the result, if a parameter gets no
gradient or two names, or if a bias is not finite in bfloat16.
"""

import dataclasses
import math

import pytest
import torch
from encoding_cases import (
    BACK,
    BIASES,
    BOTH,
    TUPE,
    random,
    randomise,
    recorded,
    transformer,
    words,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.encodings import Placement, StackShape, build
from ropewalk.encodings.biases import bucket_borders, slopes
from ropewalk.lab.tensors import load_weights, read_tensors, weights_of, write_tensors
from ropewalk.model import Attention, initialize

transformers = pytest.importorskip(
    "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
)
bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
t5 = pytest.importorskip("transformers.models.t5.modeling_t5")

LEARNED = [name for name in BIASES if not name.startswith("alibi")]
seeds = st.integers(0, 2**32 - 1)
positions = st.lists(st.integers(0, 400), min_size=1, max_size=6)
shapes = pytest.mark.parametrize("shape", [BACK, BOTH], ids=["back", "both"])


# What each paper says, one score at a time


def paper_alibi(site, shape: StackShape, h: int, i: int, j: int) -> float:
    """Press et al. 2021, section 3, for a power of two heads; both ways as the authors' issue 5."""
    if site.one_sided:
        half = shape.heads // 2
        hidden = j > i if h < half else j < i
        return -math.inf if hidden else -(2 ** (-8 * (h % half + 1) / half)) * abs(i - j)
    return -(2 ** (-8 * (h + 1) / shape.heads)) * abs(i - j)


def paper_t5(site, shape: StackShape, h: int, i: int, j: int) -> float:
    """Raffel et al. 2019, section 2.1, with the bucket as Mesh TensorFlow computes it."""
    table = site.table.weight
    buckets, distance = len(table), 20 if len(table) == 8 else 128
    bucket, far = 0, j - i
    if shape.causal:
        far = max(0, -far)
    else:
        buckets //= 2
        bucket, far = buckets * (far > 0), abs(far)
    exact = buckets // 2
    if far >= exact:
        ratio = math.log(far / exact) / math.log(distance / exact)
        far = min(exact + int(ratio * (buckets - exact) + 1e-9), buckets - 1)
    return table[bucket + far, h].item()


def paper_kerple(site, shape: StackShape, h: int, i: int, j: int) -> float:
    """Chi et al. 2022, its two variants, with the limits of the authors' code."""
    r1, r2 = max(site.r1[h].item(), 0.01), max(site.r2[h].item(), 0.01)
    if site.power:
        return -r1 * abs(i - j) ** min(r2, 2)
    return -r1 * math.log(1 + r2 * abs(i - j))


def paper_fire(site, shape: StackShape, h: int, i: int, j: int) -> float:
    """Li et al. 2023, the code of the appendix; both ways by |i - j| and max(i, j)."""
    far = i if shape.causal else max(i, j)
    c, threshold = abs(site.c.item()), abs(site.stretch.item() * site.length)
    share = math.log(c * abs(i - j) + 1) / (math.log(c * max(far, threshold) + 1) + 1e-6)
    inner = zip(site.weight.tolist(), site.offset.tolist(), strict=True)
    hidden = [max(0.0, w * share + b) for w, b in inner]
    return sum(w * x for w, x in zip(site.output.weight[h].tolist(), hidden, strict=True))


def paper_tupe(site, shape: StackShape, h: int, i: int, j: int) -> float:
    """Ke et al. 2020, eq. 7 to 9: absolute, then T5's, then position 0 apart."""
    if site.first is not None and 0 in (i, j):
        return site.first[h].item() if i else 0  # any number would do for all keys of a query
    mine = slice(shape.head_dim * h, shape.head_dim * (h + 1))
    p = [(x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() for x in site.table.weight[[i, j]]]
    p_i, p_j = (site.norm.weight * x + site.norm.bias for x in p)
    score = (site.query.weight @ p_i)[mine] @ (site.key.weight @ p_j)[mine]
    score = score.item() / math.sqrt(2 * shape.head_dim)
    return score + (paper_t5(site.relative, shape, h, i, j) if site.relative else 0)


PAPER = {
    "alibi": paper_alibi,
    "t5": paper_t5,
    "kerple": paper_kerple,
    "fire": paper_fire,
    "tupe": paper_tupe,
}


@pytest.mark.parametrize("name", BIASES)
@shapes
@given(queries=positions, keys=positions, seed=seeds)
@settings(max_examples=12)
@torch.no_grad()
def test_each_is_what_its_paper_defines(name, shape, queries, keys, seed):
    site = randomise(build(name, shape), seed).for_layer(1)
    bias = site.bias(Placement(torch.tensor(queries), torch.tensor(keys)))
    assert bias.shape == (4, len(queries), len(keys))
    rule = PAPER[name.split("(")[0]]
    for h in range(4):
        for s, i in enumerate(queries):
            for t, j in enumerate(keys):
                expected = rule(site, shape, h, i, j)
                if expected == -math.inf:
                    assert bias[h, s, t] < -1e37
                elif j <= i or not shape.causal:
                    assert bias[h, s, t].item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


# Other code


@pytest.mark.parametrize("heads", [*range(1, 18), 24, 40, 71])
def test_slopes_are_those_of_bloom(heads):
    last = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(torch.tensor(slopes(heads)), last, rtol=1e-6, atol=0)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 3), seeds)
@settings(max_examples=30)
def test_alibi_gives_the_probabilities_of_bloom(heads, length, padding, seed):
    site = build("alibi", dataclasses.replace(BACK, heads=heads)).for_layer(0)
    mask = torch.arange(length + padding) >= padding
    theirs = bloom.build_alibi_tensor(mask[None].long(), heads, torch.float32)
    place = torch.arange(length + padding) - padding
    ours = site.bias(Placement(place))
    scores = random(heads, length + padding, length + padding, seed=seed)
    look = (place <= place[:, None]) & mask
    theirs, ours = ((scores + b).masked_fill(~look, -1e30).softmax(-1) for b in (theirs, ours))
    torch.testing.assert_close(ours[:, padding:], theirs[:, padding:], rtol=0, atol=1e-6)


def their_t5(causal: bool, buckets: int, distance: int) -> t5.T5Attention:
    config = transformers.T5Config(
        d_model=32,
        d_kv=8,
        num_heads=4,
        dropout_rate=0.0,
        is_decoder=causal,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
    )
    return t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)


@shapes
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (64, 256), (12, 1000)])
@torch.no_grad()
def test_t5_biases_are_those_of_transformers(shape, buckets, distance):
    site = randomise(build(f"t5(buckets={buckets}, distance={distance})", shape)).for_layer(0)
    theirs = their_t5(shape.causal, buckets, distance)
    theirs.relative_attention_bias.weight.copy_(site.table.weight)
    for past, keys in ((0, 30), (29, 30), (0, 400), (1200, 1300)):
        queries = torch.arange(past, min(keys, past + 300))
        ours = site.bias(Placement(queries, torch.arange(keys)))
        expected = theirs.compute_bias(len(queries), keys, past_seen_tokens=past)[0]
        assert torch.equal(ours.float(), expected)


@pytest.mark.parametrize("scale", [1, None])
@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_attention_with_t5_is_that_of_transformers(causal, scale):
    theirs = randomise(their_t5(causal, 32, 128))
    shape = dataclasses.replace(BACK, kv_heads=4, causal=causal)
    ours = Attention(32, 4, encoding=build(f"t5(scale={scale})", shape).for_layer(0)).double()
    for linear in (ours.query, ours.key_value, ours.output):
        linear.bias.zero_()
    # Without scale=1 the scores are divided by sqrt(head_dim), and W_q is as much larger.
    ours.query.weight.copy_(theirs.q.weight * (1 if scale else math.sqrt(8)))
    ours.key_value.weight.copy_(torch.cat((theirs.k.weight, theirs.v.weight)))
    ours.output.weight.copy_(theirs.o.weight)
    ours.encoding.table.weight.copy_(theirs.relative_attention_bias.weight)
    x = random(2, 150, 32)
    mask = torch.ones(150, 150, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    added = torch.zeros(150, 150, dtype=torch.float64).masked_fill(~mask, -1e30)[None, None]
    expected = theirs(x, mask=added)[0]
    torch.testing.assert_close(ours(x, causal=causal).output, expected, rtol=0, atol=1e-9)


# How they start and what they learn


@given(st.integers(1, 40).map(lambda n: 2 * n), st.integers(2, 3000))
def test_buckets_rise_with_distance_and_end_where_told(buckets, distance):
    borders = bucket_borders(buckets, buckets // 2 + distance)
    assert len(borders) == buckets - 1
    assert borders == sorted(borders)
    assert borders[: buckets // 2] == list(range(1, buckets // 2 + 1))
    assert borders[-1] <= buckets // 2 + distance


@torch.no_grad()
def spread_at_start(name: str, head_dim: int) -> float:
    """Return the standard deviation of scores in a fresh model, over seeds and pairs."""
    shape, width = StackShape(1, 4, 4, head_dim, 4 * head_dim, causal=False), 4 * head_dim
    attention, found = Attention(width, 4, encoding=build(name, shape).for_layer(0)), []
    for seed in range(5):
        initialize(attention, seed)
        x = random(1, 64, width, seed=seed).float()
        q = attention.query(x).unflatten(-1, (4, head_dim)).transpose(1, 2)
        k = attention.key_value(x).chunk(2, -1)[0].unflatten(-1, (4, head_dim)).transpose(1, 2)
        scores = q @ k.mT * (attention.encoding.scale or head_dim**-0.5)
        if name == "tupe":
            scores = scores + attention.encoding.bias(Placement(torch.arange(64)))
        found.append(scores)
    return torch.stack(found).std().item()


@pytest.mark.parametrize("head_dim", [16, 64])
def test_scores_start_at_the_same_size_for_every_head_dim(head_dim):
    for name in ("none", "t5", "tupe"):
        assert spread_at_start(name, head_dim) == pytest.approx(1, abs=0.15)
    unscaled = spread_at_start("t5(scale=1)", head_dim) / spread_at_start("t5", head_dim)
    assert unscaled == pytest.approx(math.sqrt(head_dim))


@pytest.mark.parametrize("name", [*LEARNED[:-4], "fire(length=20)", *TUPE])
@shapes
def test_gradients_reach_every_parameter_from_the_start(name, shape):
    attention = Attention(32, 4, kv_heads=2, encoding=build(name, shape).for_layer(0))
    initialize(attention, 0)
    x, weights = random(1, 40, 32).float(), random(1, 40, 32, seed=1).float()
    (attention(x, causal=shape.causal).output * weights).sum().backward()
    grads = {key: p.grad for key, p in attention.encoding.named_parameters()}
    if "offset" in grads:  # FIRE's units that are active only at distance 0 have an input of 0
        grads["weight"] = grads["weight"].abs() + grads["offset"].abs()
    for key, grad in grads.items():
        used = grad[1:4] if key.endswith("table.weight") else grad
        assert (used.abs() > 1e-6).all(), key


@pytest.mark.parametrize("hidden", [2, 32])
@torch.no_grad()
def test_half_of_the_units_of_fire_start_rising_and_half_falling(hidden):
    site, share = build(f"fire(hidden={hidden})", BACK).for_layer(0), torch.linspace(0, 1, 101)
    at_work = share[:, None] * site.weight + site.offset > 0
    assert at_work.any(0).all()
    assert not at_work.all(0).any()
    assert at_work[-1].sum() == at_work[0].sum() == hidden // 2


numbers = st.sampled_from([-3.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 3.0])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), seeds)
@settings(max_examples=40)
def test_fire_in_pieces_is_its_network_of_units(units, seed):
    """Kinks that coincide, are outside or do not exist; fails if a wrong unit is active in a piece.

    A share of 0, where a kink may be, has two gradients and none of them is asked for.
    """
    site = build(f"fire(hidden={len(units)}, length=5)", BACK).for_layer(0)
    with torch.no_grad():
        randomise(site, seed)
        site.weight.copy_(torch.tensor([w for w, _ in units]))
        site.offset.copy_(torch.tensor([b for _, b in units]))
    placement = Placement(torch.arange(12))
    share = site.share(placement, torch.float64)
    units_at_work = (share.unsqueeze(-1) * site.weight + site.offset).relu()
    whole = (units_at_work @ site.output.weight.t()).movedim(-1, 0)
    found = site.form(placement)
    weights = random(*found.shape, seed=seed) * (share.detach() > 0)
    close = {"atol": 1e-9, "rtol": 1e-9}
    torch.testing.assert_close(found, whole, **close)
    names, parameters = zip(*site.named_parameters(), strict=True)
    ours, theirs = (
        torch.autograd.grad((x * weights).sum(), parameters, allow_unused=True)
        for x in (found, whole)
    )
    for name, mine, its in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, **close, msg=name)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_what_is_held_at_an_edge_comes_back_when_gradients_say_so(kind):
    site = build(f"kerple(kind={kind})", BACK).for_layer(0)
    with torch.no_grad():
        site.r1.fill_(-3.0)
        site.r2.copy_(torch.tensor([-1.0, 0.0, 5.0, 1.0]))
    bias = site.bias(Placement(torch.arange(9)))
    most = 0.01 * (8**2 if kind == "power" else math.log(1 + 5 * 8))  # of r2 = 5, if it may be
    assert bias[2, 8, 0].item() == pytest.approx(-most)
    bias.sum().backward()
    assert (site.r1.grad < 0).all()  # less of it would raise all scores
    assert (site.r2.grad < 0).all()


# All of them


@given(st.integers(0, 900), st.integers(1, 100_000), seeds)
@settings(max_examples=20)
@torch.no_grad()
def test_fire_is_relative_up_to_its_length_and_bounded_beyond(near, far, seed):
    for shape in (BACK, BOTH):
        site = build("fire(length=1000)", shape).for_layer(0)
        initialize(site, seed)
        place = torch.arange(100)
        at_home = site.bias(Placement(place))
        assert torch.equal(site.bias(Placement(place + near)), at_home)
        away = site.bias(Placement(place + 1000 + far))
        assert not torch.allclose(away[:, 99, 0], at_home[:, 99, 0], rtol=1e-3)
        bound = site.output.weight.abs().sum(1)  # a hidden unit gives at most 1
        queries = Placement(torch.tensor([far, 10 * far]), torch.arange(0, far, 1 + far // 50))
        assert (site.bias(queries).abs().amax((1, 2)) <= bound).all()


@pytest.mark.parametrize("name", BIASES)
@torch.no_grad()
def test_positions_that_differ_within_the_batch_have_biases_of_their_own(name):
    for shape in (BACK, BOTH):
        site = randomise(build(name, shape)).for_layer(0)
        queries, keys = torch.randint(0, 300, (3, 5)), torch.randint(0, 300, (3, 7))
        queries[0, 0] = keys[1, 1] = 0
        bias = site.bias(Placement(queries, keys))
        mixed = site.bias(Placement(queries, keys[0])), site.bias(Placement(queries[0], keys))
        assert bias.shape == mixed[0].shape == mixed[1].shape == (3, 4, 5, 7)
        for row in range(3):
            for found, q, k in (
                (bias, queries[row], keys[row]),
                (mixed[0], queries[row], keys[0]),
                (mixed[1], queries[0], keys[row]),
            ):
                torch.testing.assert_close(found[row], site.bias(Placement(q, k)))


@pytest.mark.parametrize("name", BIASES)
@torch.no_grad()
def test_biases_are_finite_also_in_bfloat16_and_formed_in_float32(name):
    queries, keys = torch.tensor([0, 3, 200, 511]), torch.tensor([0, 1, 190, 510, 511])
    for shape in (BACK, BOTH):
        rounded = randomise(build(name, shape)).to(torch.bfloat16)
        bias = rounded.for_layer(0).bias(Placement(queries, keys))
        assert bias.to(torch.bfloat16).isfinite().all()
        exact = rounded.double().for_layer(0).bias(Placement(queries, keys))
        step = 0.05 if name in TUPE else 1e-5  # TUPE's are products, as precise as those of content
        torch.testing.assert_close(bias.double(), exact.double(), rtol=step, atol=step)


@pytest.mark.parametrize("name", BIASES)
def test_a_site_forms_its_bias_once_a_pass(monkeypatch, name):
    model = transformer(name, layers=3)
    sites = {layer.attention.encoding for layer in [*model.encoder, *model.decoder]}
    formed = recorded(monkeypatch, type(next(iter(sites))), "form")
    for passes in (1, 2):
        model(words(2, 5), words(2, 5, seed=1))
        assert sorted(id(site) for site, _ in formed) == sorted([*map(id, sites)] * passes)
    assert len(sites) == (6 if name == "fire" else 2)


@pytest.mark.parametrize("name", [*LEARNED, "t5(cross=True)", "fire(cross=True)"])
def test_each_parameter_is_saved_under_one_name(name, tmp_path):
    model, other = transformer(name, seed=1), transformer(name, seed=2)
    parameters = dict(model.named_parameters())
    assert weights_of(model).keys() == parameters.keys()
    ours = [key for key in parameters if "encoding." in key]
    assert {key.split(".")[0] for key in ours} >= {"encoder_encoding", "decoder_encoding"}
    assert all(key.startswith(("encoder_enc", "decoder_enc", "cross_enc")) for key in ours)
    write_tensors(tmp_path / "model.safetensors", weights_of(model), {})
    load_weights(other, read_tensors(tmp_path / "model.safetensors")[0])
    for key, value in other.named_parameters():
        assert torch.equal(value, parameters[key]), key


@torch.no_grad()
def test_tupe_refuses_positions_that_its_table_has_not_got():
    encoding = build("tupe(max_positions=9)", BACK)
    assert encoding.max_positions == 9
    site = encoding.for_layer(0)
    assert site.bias(Placement(torch.arange(9))).isfinite().all()
    for placement in (Placement(torch.tensor([9])), Placement(torch.arange(3), torch.arange(10))):
        with pytest.raises(
            ValueError, match=r"lie in 0\.\.8, .* tupe table, got 9; .* tupe\(max_pos"
        ):
            site.bias(placement)
    with pytest.raises(ValueError, match=r"positions must be at least 0, .* got -1"):
        site.bias(Placement(torch.tensor([-1])))


# Arguments


def test_heads_look_to_both_sides_in_pairs():
    odd = dataclasses.replace(BOTH, heads=5, kv_heads=5)
    with pytest.raises(ValueError, match="symmetric must be True for 5 heads, got False"):
        build("alibi(symmetric=False)", odd)
    back = build("alibi(symmetric=False)", dataclasses.replace(odd, causal=True))
    assert not back.shared.one_sided
