"""Linear attention compared with its definition: sums over pairs, written from the papers.

These fail if numerator and denominator are confused or both are rotated, if features are rotated
before instead of after they are computed or the reverse, if chunks, caches, groups of heads or
padding change the result, if the scale of a later key reaches an earlier query, if memory or
gradients need all pairs, and if an encoding that cannot act is accepted.
"""

import itertools
import math
import re

import encoding_cases as cases
import pytest
import torch
from encoding_cases import LINEAR_KINDS as KINDS
from encoding_cases import check_padding_of, close, random, words
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_sizes import Sizes
from torch import Tensor, nn

from ropewalk.encodings import REGISTRY, AttentionEncoding, Placement
from ropewalk.model import (
    Attention,
    DecoderCache,
    KeyValueCache,
    LinearAttentionCache,
    Transformer,
)
from ropewalk.model.features import EluFeatures, RandomFeatures
from ropewalk.model.linear_attention import Placed, absorb, hide, look, look_back, place, weights

ENCODINGS = ["none", "rotary", "rotary(pairing=interleaved, theta=7)"]
kinds = st.sampled_from(KINDS)
encodings = st.sampled_from(ENCODINGS)
seeds = st.integers(0, 2**32 - 1)


def attention_with(kind: str, name: str = "rotary", kv_heads: int = 2, seed: int = 0) -> Attention:
    return cases.attention_with(name, kv_heads, seed=seed, kind=kind)


def transformer(kind: str, name: str = "rotary", seed: int = 0) -> Transformer:
    return cases.transformer(name, seed, kind=kind)


# The definition


def rotation(name: str, size: int, position: int) -> Tensor:
    """R of RoFormer's eq. 15 for one position; pairs as the encoding's name says."""
    matrix = torch.eye(size, dtype=torch.float64)
    if name == "none":
        return matrix
    theta, half = (7.0, 1) if "interleaved" in name else (10_000.0, size // 2)
    for i in range(size // 2):
        angle = position * theta ** (-2 * i / size)
        a, b = (2 * i, 2 * i + 1) if "interleaved" in name else (i, i + half)
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
    return matrix


def phi(attention: Attention, x: Tensor) -> Tensor:
    """Features of one vector, as the papers have them."""
    if isinstance(attention.features, EluFeatures):
        return nn.functional.elu(x) + 1
    w, y = attention.features.projection.double(), x / len(x) ** 0.25
    return torch.stack([(row @ y - y @ y / 2).exp() for row in w]) / len(w) ** 0.5


def naive(attention: Attention, name: str, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
    """One sentence (S, width), one pair of query and key at a time: eq. 19, or R within φ."""
    group, before = attention.heads // attention.kv_heads, attention.linear.rotate == "before"
    q, kv = attention.query(x), attention.key_value(memory)
    output = torch.zeros_like(q)
    for h, m in itertools.product(range(attention.heads), range(len(x))):
        mine = slice(8 * h, 8 * h + 8)
        numerator, denominator = torch.zeros(8, dtype=torch.float64), 0.0
        for n in range(len(memory)):
            if not seen[m, n]:
                continue
            qm, kn = q[m, mine], kv[n, 8 * (h // group) :][:8]
            vn = kv[n, 8 * (attention.kv_heads + h // group) :][:8]
            if before:
                qm, kn = rotation(name, 8, m) @ qm, rotation(name, 8, n) @ kn
            fq, fk = phi(attention, qm), phi(attention, kn)
            product = fq @ fk
            denominator += product
            if not before:
                product = (rotation(name, len(fq), m) @ fq) @ (rotation(name, len(fk), n) @ fk)
            numerator += product * vn
        output[m, mine] = numerator / denominator
    return attention.output(output)


@given(kinds, encodings, st.sampled_from([4, 2, 1]), st.integers(1, 6), st.booleans(), seeds)
@settings(max_examples=25)
@torch.no_grad()
def test_attention_is_what_the_papers_define(kind, name, kv_heads, length, causal, seed):
    attention = attention_with(kind, name, kv_heads, seed)
    x, memory = random(2, length, 32, seed=seed), random(2, 5, 32, seed=seed + 1)
    memory = x if causal else memory
    mask = torch.rand(2, memory.shape[1], generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[:, 0] = True
    output = attention(
        x, None if causal else memory, mask=mask[:, None, None], causal=causal
    ).output
    for b in range(2):
        seen = mask[b].expand(length, -1)
        seen = seen.tril() if causal else seen
        close(output[b], naive(attention, name, x[b], memory[b], seen), 1e-5)


@given(kinds, encodings, st.sampled_from([4, 2]), st.booleans(), seeds)
@settings(max_examples=30)
@torch.no_grad()
def test_weights_are_those_of_the_output(kind, name, kv_heads, causal, seed):
    attention = attention_with(kind, name, kv_heads, seed)
    x, mask = random(2, 6, 32, seed=seed), torch.ones(2, 1, 1, 6, dtype=torch.bool)
    mask[1, ..., 3:5] = False
    plain = attention(x, mask=mask, causal=causal)
    shown = attention(x, mask=mask, causal=causal, need_probabilities=True)
    assert plain.probabilities is None
    close(shown.output, plain.output, 1e-9)
    p = shown.probabilities
    assert p.shape == (2, 4, 6, 6)
    assert (p[1, ..., 3:5] == 0).all()
    if causal:
        assert (p.triu(1) == 0).all()
    if name == "none" or "before" in kind:
        assert (p >= 0).all()
        close(p.sum(-1), torch.ones(2, 4, 6, dtype=p.dtype))
    v = attention.key_value(x).unflatten(-1, (2, kv_heads, 8))[:, :, 1]
    v = v.transpose(1, 2).repeat_interleave(4 // kv_heads, 1)
    close(attention.output((p @ v).transpose(1, 2).flatten(2)), plain.output, 1e-9)


def wave(*shape: int, step: float, size: float = 1.0) -> Tensor:
    count = math.prod(shape)
    return (torch.arange(count, dtype=torch.float64) * step).sin().view(shape) * size


def test_attention_is_that_of_performer_pytorch():
    """Its softmax_kernel, linear_attention and causal_linear_attention_noncuda, eps=0 (1.1.4)."""
    features = RandomFeatures(4, 6)
    features.projection = wave(6, 4, step=2.3)
    q, k = wave(1, 1, 5, 4, step=0.7, size=3), wave(1, 1, 5, 4, step=1.1, size=3)
    v = wave(1, 1, 5, 3, step=1.9)
    places = Placement(torch.arange(5))
    query, key = place(features, AttentionEncoding(), q, k, places, rotate_features=True)
    both_ways = [
        [-0.5274874768, 0.6503396628, 0.1069914210],
        [-0.4833770688, 0.6575181554, 0.0582395495],
        [-0.5183782856, 0.6506652645, 0.0976717026],
        [-0.4959612988, 0.6560850748, 0.0717503795],
        [-0.5026455035, 0.6524789974, 0.0807661986],
    ]
    back = [
        [0.0000000000, 0.9463000877, -0.6118578909],
        [-0.0478469762, 0.9481785313, -0.5652254772],
        [-0.4057303513, 0.8396679409, -0.1371814186],
        [-0.4846013670, 0.7097782470, 0.0256735629],
        [-0.5026455035, 0.6524789974, 0.0807661986],
    ]
    close(look(query, absorb(key, v)), torch.tensor([[both_ways]], dtype=torch.float64), 1e-9)
    close(look_back(query, key, v)[0], torch.tensor([[back]], dtype=torch.float64), 1e-9)


# Chunks


def stand(attention: Attention, q: Tensor, k: Tensor) -> tuple[Placed, Placed]:
    """Query and key as they stand at the positions 0, 1, ..."""
    after, places = attention.linear.rotate == "after", Placement(torch.arange(q.shape[2]))
    return place(attention.features, attention.encoding, q, k, places, rotate_features=after)


def placed(kind: str, tokens: int, seed: int, size: float = 1.0, name: str = "rotary"):
    """Query, key and value of 4 and 2 heads, as leaves and as they stand at their positions."""
    attention = attention_with(kind, name, seed=seed)
    q, k = (size * random(2, h, tokens, 8, seed=seed + h) for h in (4, 2))
    v = random(2, 2, tokens, 8, seed=seed + 1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    return leaves, *stand(attention, q, k), v


@given(
    kinds,
    st.integers(1, 11),
    st.integers(1, 12),
    st.sampled_from([0.1, 1.0, 30.0]),
    encodings,
    seeds,
)
@settings(max_examples=40)
def test_chunks_change_neither_output_nor_gradient(kind, tokens, chunk, size, name, seed):
    leaves, query, key, v = placed(kind, tokens, seed, size, name)
    mask = torch.rand(2, 1, 1, tokens, generator=torch.Generator().manual_seed(seed)) < 0.7
    key = hide(key, mask)
    seen = mask & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    expected = weights(query, key, causal=True) @ v.repeat_interleave(2, 1)
    expected = expected * seen.any(-1, keepdim=True)
    output, sums = look_back(query, key, v, chunk=chunk)
    close(output, expected, 1e-8 * max(1.0, expected.abs().max().item()))
    upstream = random(*output.shape, seed=seed)
    gradients = [
        torch.autograd.grad((x * upstream).sum(), leaves, retain_graph=True)
        for x in (output, expected)
    ]
    for chunked, whole in zip(*gradients, strict=True):
        close(chunked, whole, 1e-7 * max(1.0, whole.abs().max().item()))
    for ours, theirs in zip(sums, absorb(key, v), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_differences(kind):
    """Scales are held fixed in the gradient: only what does not cancel would show."""
    attention = attention_with(kind)
    mask = torch.tensor([1, 1, 0, 1, 1], dtype=torch.bool)

    def attended(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        query, key = stand(attention, q, k)
        key = hide(key, mask)
        return look_back(query, key, v, chunk=2)[0], look(query, absorb(key, v))

    q, k, v = random(1, 2, 5, 8), random(1, 1, 5, 8, seed=1), random(1, 1, 5, 3, seed=2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(attended, leaves, fast_mode=True)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["performer(features=12)", "performer(features=6, rotate=before)"])
def test_keys_ahead_do_not_push_those_behind_out_of_range(kind):
    """The first keys are so long that their features are e^-7000 of those of the others.

    With one scale for all keys, the first queries, which see none of the others, divide 0 by 0.
    """
    attention = attention_with(kind, "none").float()
    q, k, v = (random(1, h, 9, 8, seed=h).float() for h in (4, 2, 3))
    v, k[:, :, :4] = v[:, :2], 200 * k[:, :, :4]
    query, key = stand(attention, q, k)
    whole, _ = look_back(query, key, v)
    assert whole.isfinite().all()
    for end in (1, 3, 6):
        start, _ = look_back(query.part(0, end), key.part(0, end), v[:, :, :end])
        close(whole[:, :, :end], start)
    wide = stand(attention, q.double(), k.double())
    close(whole[:, :, :1], v[:, :, :1].repeat_interleave(2, 1))
    close(whole.double()[:, :, 5:], look_back(*wide, v.double())[0][:, :, 5:], 1e-4)


# Memory


def costs(kind: str, tokens: int, causal: bool) -> tuple[int, int]:
    """The largest tensor of forward and backward, and all that is stored for the gradient."""
    attention, kept = attention_with(kind).train(), {}
    x = random(1, tokens, 32).requires_grad_()

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with Sizes() as sizes:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            output = attention(x, causal=causal).output
        output.sum().backward()
    return sizes.largest, sum(kept.values())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["elu", "performer(features=12)"])
def test_memory_grows_with_the_length_alone(kind, causal):
    """If all pairs were computed, one of both would grow fourfold; sums per token are large."""
    largest, kept = zip(*(costs(kind, tokens, causal) for tokens in (256, 512)), strict=True)
    assert largest[1] <= 2 * largest[0]
    assert kept[1] <= 2.1 * kept[0]
    assert largest[1] <= 4 * 512 * 32
    softmax = attention_with("softmax")
    with Sizes() as sizes:
        softmax(random(1, 512, 32), need_probabilities=True)
    assert sizes.largest == 4 * 512 * 512  # and all pairs are seen where they are formed


# Caches


@torch.no_grad()
def test_a_step_brings_a_token_for_each_beam():
    model = transformer("elu")
    cache = model.shape.new_cache(2, branching=True)
    with pytest.raises(RuntimeError, match="follow needs a branching cache, after its first step"):
        cache.follow(torch.zeros(1, 3, dtype=torch.int64))
    memory = model.encode(words(1, 5))
    model.decode(words(1, 1), memory, cache=cache)
    cache.follow(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"one token for each of 3 beams, got shape \(1, 2\)"):
        model.decode(words(1, 2), memory, cache=cache)


# In a transformer


@pytest.mark.parametrize("kind", KINDS)
def test_padding_reaches_nothing(kind):
    check_padding_of(transformer(kind))


# Refused arguments


class Raw(AttentionEncoding):
    """A site that needs all raw keys at each step."""

    cached_keys = "raw"


class Scaled(AttentionEncoding):
    """A site that changes the scale of scores."""

    scale = 1.0


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("alibi", "elu", "got 'elu': it changes scores, and linear attention computes no scores"),
        ("t5", "performer", "got 'performer': it changes scores"),
        (
            "shaw",
            "performer(features=8)",
            "got 'performer(features=8)': it has its own attention, ",
        ),
        ("raw", "elu", "it needs all keys at each step, and linear attention stores o"),
        ("scaled", "elu", "it changes scores"),
        (
            "rotary(values=True)",
            "performer(features=12)",
            "it rotates values, whose size differs from that of features; write rotate=before",
        ),
    ],
)
def test_an_encoding_that_cannot_act_is_refused_when_built(monkeypatch, name, kind, message):
    monkeypatch.setitem(REGISTRY, "raw", cases.of_site(Raw))
    monkeypatch.setitem(REGISTRY, "scaled", cases.of_site(Scaled))
    with pytest.raises(ValueError, match=re.escape(message)):
        transformer(kind, name)
    transformer("softmax", name)


@pytest.mark.parametrize("kind", ["elu", "elu(rotate=before)", "performer(rotate=before)"])
@torch.no_grad()
def test_values_can_rotate_where_they_have_the_size_of_what_is_rotated(kind):
    """What is fetched from n to m is rotated by n - m: R_m^T Σ p_mn R_n v_n."""
    attention, x = attention_with(kind, "rotary(values=True)", kv_heads=4), random(1, 6, 32)
    whole = attention(x, causal=True, need_probabilities=True)
    v = attention.key_value(x)[0, :, 32:].unflatten(-1, (4, 8)).transpose(0, 1)
    rotates = torch.stack([rotation("rotary", 8, n) for n in range(6)])
    rotated = torch.einsum("ned,hnd->hne", rotates, v)
    fetched = torch.einsum("mde,hmd->hme", rotates, whole.probabilities[0] @ rotated)
    expected = attention.output(fetched.transpose(0, 1).flatten(1))
    close(whole.output[0], expected)
    close(attention(x, causal=True).output[0], expected)
    cache = LinearAttentionCache()
    for i in range(6):
        part = attention(x[:, i : i + 1], causal=True, cache=cache).output
        close(part[0, 0], expected[i])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"mask": torch.ones(2, 1, 3, 3, dtype=torch.bool)},
            ValueError,
            "mask must be the same for all queries and heads in linear attention, because they "
            "share the sums over keys: (B, 1, 1, T), got (2, 1, 3, 3)",
        ),
        (
            {"mask": torch.ones(4, 1, 3, dtype=torch.bool)},
            ValueError,
            "got (1, 4, 1, 3)",
        ),
        (
            {"cache": LinearAttentionCache(), "need_probabilities": True},
            ValueError,
            "need_probabilities must be False with a cache in linear attention, got True",
        ),
        (
            {"cache": KeyValueCache()},
            TypeError,
            "cache must be a LinearAttentionCache in this kind of attention, got a KeyValueCache",
        ),
    ],
)
def test_linear_attention_refuses_what_it_cannot_do(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        attention_with("elu")(random(2, 3, 32), **arguments)


def test_softmax_attention_reads_no_sums():
    message = r"cache must be a KeyValueCache in .* got a LinearAttentionCache"
    with pytest.raises(TypeError, match=message):
        attention_with("softmax")(random(1, 3, 32), cache=LinearAttentionCache())
    assert not DecoderCache(1).linear
