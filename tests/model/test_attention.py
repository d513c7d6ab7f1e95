"""Attention and its cache: compared with a loop, and with wrong arguments.

These fail if heads, groups, masks or the scale are confused, if masked keys get any weight or a row
of them becomes NaN, if all rows of a batch get the positions of the first, if bfloat16 is rounded
more than once, if blocks of queries change the result or compute all pairs, and if a cache loses,
swaps or repeatedly copies its contents.
"""

import copy
import itertools

import pytest
import torch
from attention_loops import loop
from encoding_cases import BACK, attention_with, close, of_site, random, recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_sizes import Sizes
from torch import nn

from ropewalk.encodings import REGISTRY, Placement, StackShape, build
from ropewalk.encodings.interface import AttentionEncoding
from ropewalk.model import Attention, KeyValueCache, initialize, softmax_attention
from ropewalk.model.softmax_attention import fused_attention

seeds = st.integers(0, 2**32 - 1)


@given(
    st.sampled_from([(1, 1), (2, 1), (4, 4), (4, 2), (4, 1)]),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["causal", "masked", "both", "cross"]),
    seeds,
)
@settings(max_examples=30)
@torch.no_grad()
def test_attention_equals_a_loop(heads, queries, keys, kind, seed):
    attention = Attention(8 * heads[0], heads[0], kv_heads=heads[1]).double()
    x, memory = random(2, queries, 8 * heads[0]), random(2, keys, 8 * heads[0], seed=seed)
    if kind != "cross":
        memory, keys = x, queries
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    allowed = mask[:, 0] if kind != "causal" else torch.ones(2, queries, keys, dtype=torch.bool)
    if kind in ("causal", "both"):
        allowed = allowed & torch.ones(queries, keys, dtype=torch.bool).tril()
    placement = Placement(torch.arange(queries), torch.arange(keys))
    output, p = loop(attention, x, memory, placement, allowed)
    arguments = {
        "memory": memory if kind == "cross" else None,
        "mask": None if kind == "causal" else mask,
        "causal": kind in ("causal", "both"),
    }
    close(attention(x, **arguments).output, output, 1e-10)
    shown = attention(x, **arguments, need_probabilities=True)
    close(shown.output, output, 1e-10)
    close(shown.probabilities, p, 1e-10)
    assert (shown.probabilities[~allowed[:, None].expand_as(p)] == 0).all()


@pytest.mark.parametrize("kind", ["softmax", "performer"])
def test_a_query_that_may_look_nowhere_gets_the_output_bias(kind):
    attention, x = attention_with("rotary", kind=kind), random(2, 3, 32).requires_grad_()
    nn.init.ones_(attention.output.bias)
    mask = torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 3)
    for causal, ask in itertools.product((False, True), repeat=2):
        output, p = attention(x, mask=mask, causal=causal, need_probabilities=ask)
        (gradient,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
        assert gradient[0].abs().max() > 0
        assert (gradient[1] == 0).all()
        close(output[1], attention.output.bias.expand(3, 32))
        close(output[:1], attention(x[:1], causal=causal).output)
        assert p is None or (p[1] == 0).all()


def test_each_of_the_batch_can_have_positions_of_its_own():
    attention = Attention(32, 4, encoding=build("rotary", BACK).for_layer(0)).double()
    x, positions = random(2, 4, 32), torch.tensor([[0, 1, 2, 3], [7, 9, 40, 2]])
    together = attention(x, placement=Placement(positions), causal=True).output
    for b in range(2):
        alone = attention(x[b : b + 1], placement=Placement(positions[b]), causal=True).output
        close(together[b : b + 1], alone)


@pytest.mark.parametrize("grad", [True, False])
def test_attention_in_bfloat16_is_that_of_its_rounded_inputs(grad):
    q, k, v = (random(2, 4, 6, 8, seed=i).bfloat16().requires_grad_(grad) for i in range(3))
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grad):
        output = fused_attention(q, k, v, None, True, 0.3)
    exact = fused_attention(q.double(), k.double(), v.double(), None, True, 0.3)
    assert output.dtype == torch.bfloat16
    if grad:  # computed in float32, rounded once
        assert torch.equal(output, exact.bfloat16())
        output.sum().backward()
        assert q.grad.dtype == torch.bfloat16
    close(output.double(), exact, 0.02)


@pytest.mark.parametrize(
    ("width", "heads", "kv_heads", "message"),
    [
        (30, 4, 4, "heads must divide width, got heads=4 and width=30"),
        (32, 0, 1, "heads must divide width, got heads=0 and width=32"),
        (32, 4, 3, "kv_heads must divide heads, got kv_heads=3, he"),
        (32, 4, 0, "kv_heads must divide heads, got kv_heads=0, he"),
        (32, 4, 8, "kv_heads must divide heads, got kv_heads=8, he"),
    ],
)
def test_heads_that_do_not_fit_are_refused(width, heads, kv_heads, message):
    with pytest.raises(ValueError, match=message):
        Attention(width, heads, kv_heads=kv_heads)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mask": torch.zeros(3, 3)}, TypeError, "mask must be boolean, .* got torch.float32"),
        (
            {"memory": torch.zeros(1, 2, 32), "causal": True},
            ValueError,
            "causal must be False if",
        ),
    ],
)
def test_attention_refuses_what_it_would_misread(arguments, error, message):
    with pytest.raises(error, match=message):
        Attention(32, 4)(torch.zeros(1, 3, 32), **arguments)


# Blocks of queries

LOOKING_BOTH_WAYS = {"xpos": "xpos(both_ways=xpos)", "cope": "cope(two_sided=True)"}


class KeyBias(AttentionEncoding):
    """A bias of keys alone, (H, 1, T): ALiBi as a row of softmax may see it, looking back."""

    def bias(self, placement):
        return torch.arange(1, 5)[:, None, None] * 0.1 * placement.keys[..., None, None, :]


@given(
    st.sampled_from([*REGISTRY, "key_bias"]),
    st.sampled_from([4, 2]),
    st.sampled_from([(1, 0), (3, 0), (4, 5), (16, 3)]),
    st.sampled_from(["causal", "masked", "both", "cross", "pairs"]),
    st.booleans(),
    seeds,
)
@settings(max_examples=40)
@torch.no_grad()
def test_blocks_of_queries_attend_as_all_at_once(name, kv_heads, sizes, kind, batched, seed):
    """Rows of 16 are one block: then, both are the same computation."""
    rows, past = sizes
    causal = kind in ("causal", "both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, "key_bias", of_site(KeyBias))
        written = name if causal else LOOKING_BOTH_WAYS.get(name, name)
        attention = attention_with(written, kv_heads, causal=causal, seed=seed)
    memory = random(2, 12, 32, seed=seed)
    x = memory[:, past:] if causal else random(2, 11, 32, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    masks = {"pairs": (2, 1, 11, 12), "causal": None, "cross": None}
    mask = masks.get(kind, (2, 1, 1, 12))
    if mask is not None:
        mask = torch.rand(mask, generator=generator) < 0.7
        mask[..., 0] = True
    positions = torch.arange(12) + torch.tensor([[0], [5]]) if batched else torch.arange(12)
    queries = positions[..., past:] if causal else positions[..., :11]

    def look(at_once: int, ask: bool):
        cache = None
        if causal:
            cache = KeyValueCache()
            if past:
                attention(
                    memory[:, :past],
                    placement=Placement(positions[..., :past]),
                    causal=True,
                    cache=cache,
                )
        fresh = queries if causal and attention.encoding.cached_keys == "rotated" else positions
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(softmax_attention, "_rows_at_once", lambda *_: at_once)
            return attention(
                x,
                None if causal else memory,
                placement=Placement(queries, positions, fresh),
                mask=mask,
                causal=causal,
                cache=cache,
                need_probabilities=ask,
            )

    for ask in (False, True):
        whole, parts = look(99, ask), look(rows, ask)
        close(parts.output, whole.output)
        if ask:
            close(parts.probabilities, whole.probabilities)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("rotary", "causal masked"),
        ("alibi", "causal"),
        ("t5", "masked"),
        ("kerple", "both ways"),
        ("shaw", "causal masked"),
        ("shaw", "both ways"),
        ("key_bias", "causal"),
        pytest.param("cope", "causal", marks=pytest.mark.slow),
        pytest.param("cope", "masked", marks=pytest.mark.slow),
    ],
)
def test_no_more_pairs_are_formed_than_a_block_of_them(monkeypatch, name, case):
    """Neither in inference nor in training, with backward; in one piece, they would be seen."""
    monkeypatch.setitem(REGISTRY, "key_bias", of_site(KeyBias))
    rows, length = 32, 512
    monkeypatch.setattr(softmax_attention, "LEAST", rows)
    name = name if "causal" in case else LOOKING_BOTH_WAYS.get(name, name)
    attention = attention_with(name, causal="causal" in case).float()
    x = random(2, length, 32).float()
    mask = torch.ones(2, 1, 1, length, dtype=torch.bool) if "masked" in case else None

    def largest(block, grad):
        monkeypatch.setattr(softmax_attention, "BLOCK", block)
        with Sizes() as sizes, torch.set_grad_enabled(grad):
            output = attention(x, mask=mask, causal="causal" in case).output
            if grad:
                output.sum().backward()
        return sizes.largest

    narrowed = case == "causal masked"
    for grad in (False, True):
        if grad and narrowed and name in ("rotary", "key_bias"):
            continue  # one mask of true and false for all heads
        assert largest(1, grad) <= 2 * 4 * rows * length
        if name != "key_bias" and (narrowed or name != "rotary"):
            assert largest(2**40, grad) >= length * length


BIASES = ["alibi", "t5", "kerple", "fire", "tupe"]
FORMING_PAIRS = [*BIASES, "shaw", "transformer_xl", "deberta", "cope"]


@pytest.fixture
def blocks(monkeypatch):
    """Let queries attend in threes in training, and return the calls that compute a block."""
    monkeypatch.setattr(softmax_attention, "LEAST", 3)
    monkeypatch.setattr(softmax_attention, "BLOCK", 1)
    return recorded(monkeypatch, softmax_attention, "checkpoint")


@pytest.mark.parametrize("kind", ["causal", "both ways", "packed"])
@pytest.mark.parametrize("name", FORMING_PAIRS)
def test_gradients_of_blocks_are_those_of_all_at_once(monkeypatch, blocks, name, kind):
    """Fails if a block's second computation sees other positions, masks or memoized biases."""
    causal = kind == "causal"
    written = name if causal else LOOKING_BOTH_WAYS.get(name, name)
    attention = attention_with(written, causal=causal)
    x, weights = random(2, 10, 32), random(2, 10, 32, seed=1)
    mask = torch.ones(2, 1, 1, 10, dtype=torch.bool)
    mask[1, ..., 7:] = False
    own = torch.arange(10).remainder(torch.tensor([[10], [6]]))  # positions (B, S)
    placement = Placement(own) if kind == "packed" else None
    parameters = tuple(attention.parameters())

    def gradients():
        output = attention(x, mask=mask, placement=placement, causal=causal).output
        return torch.autograd.grad((output * weights).sum(), parameters, allow_unused=True)

    parts = gradients()
    assert len(blocks) == 4
    monkeypatch.setattr(softmax_attention, "_rows_at_once", lambda *_: 99)
    for part, whole in zip(parts, gradients(), strict=True):
        torch.testing.assert_close(part, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", FORMING_PAIRS[1:])  # alibi has no parameters
def test_blocks_keep_the_parameters_that_they_were_computed_with(monkeypatch, blocks, name):
    """Fails if the second computation uses the module's parameters at backward time."""
    attention, other = attention_with(name, 4), attention_with(name, 4, seed=7)
    given = {key: p.detach().clone().requires_grad_() for key, p in other.named_parameters()}
    x = random(1, 10, 32)

    def gradients():
        call = torch.func.functional_call(attention, given, (x,), {"causal": True})
        return torch.autograd.grad(call.output.sum(), tuple(given.values()), allow_unused=True)

    parts = gradients()
    assert len(blocks) == 4
    monkeypatch.setattr(softmax_attention, "_rows_at_once", lambda *_: 99)
    for part, whole in zip(parts, gradients(), strict=True):
        torch.testing.assert_close(part, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["t5", "shaw"])
def test_transforms_of_functions_reach_through_long_attention(blocks, name):
    """Fails if torch.func does not work with blocks that are computed twice."""
    attention = attention_with(name)
    x = random(1, 10, 32).requires_grad_()
    (expected,) = torch.autograd.grad(attention(x, causal=True).output.sum(), x)
    assert blocks
    close(torch.func.grad(lambda x: attention(x, causal=True).output.sum())(x), expected)


# Caches


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_a_cache_holds_what_was_appended(steps):
    keys, values = random(2, 3, sum(steps), 4), random(2, 3, sum(steps), 5, seed=1)
    cache, end = KeyValueCache(), 0
    for step in steps:
        start, end = end, end + step
        held = cache.append(keys[..., start:end, :], values[..., start:end, :])
        assert cache.length == end
        for got in (held, cache.held()):
            assert torch.equal(got[0], keys[..., :end, :])
            assert torch.equal(got[1], values[..., :end, :])


def test_a_cache_moves_seldom_and_is_empty_at_first():
    cache, places = KeyValueCache(), set()
    with pytest.raises(RuntimeError, match="the cache is empty"):
        cache.held()
    for _ in range(300):
        places.add(cache.append(*torch.zeros(2, 1, 1, 1, 4))[0].data_ptr())
    assert len(places) <= 6  # 16, 32, ... 512


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        *itertools.product(["softmax", "performer", "elu"], ["none", "rotary"]),
        *itertools.product(
            ["softmax"], ["alibi", "shaw", "transformer_xl", "deberta", "cope(two_sided=True)"]
        ),
    ],
)
def test_nothing_at_all_is_attended_to(kind, encoding):
    """Fails if an empty batch, sequence or memory is an error, in one way of many."""
    sizes = (0, 3, 3), (2, 0, 0), (2, 3, 0), (2, 0, 3), (0, 0, 0)
    for (batch, queries, keys), grad in itertools.product(sizes, (False, True)):
        causal = queries == keys
        attention = attention_with(encoding, 4, causal=causal, kind=kind).float()
        x, memory = torch.randn(batch, queries, 32), torch.randn(batch, keys, 32)
        with torch.set_grad_enabled(grad):
            output = (attention(x, causal=True) if causal else attention(x, memory)).output
        assert output.shape == x.shape
        if not keys:
            assert torch.equal(output, attention.output.bias.expand_as(x))


def test_a_mask_of_keys_alone_serves_every_way():
    x, mask = torch.randn(2, 5, 32), torch.tensor([True, True, False, True, False])
    attention = Attention(32, 4)
    expected = attention(x, mask=mask.expand(2, 1, 5, 5)).output
    torch.testing.assert_close(attention(x, mask=mask).output, expected)
    formed = attention(x, mask=mask, need_probabilities=True).output
    torch.testing.assert_close(formed, expected)


def test_an_encoding_is_not_taken_for_its_site():
    with pytest.raises(TypeError, match=r"got Rotary; write encoding.for_layer\(layer\)"):
        Attention(32, 4, encoding=build("rotary", BACK))


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_for_another_number_of_heads_is_refused(name):
    """Fails if one head's bias serves all: it would broadcast."""
    site = build(name, StackShape(1, 1, 1, 8, 32, True)).for_layer(0)
    with pytest.raises(ValueError, match="built for the 4 heads"):
        Attention(32, 4, encoding=site)(torch.randn(1, 3, 32), causal=True)


def test_a_bias_far_from_all_keys_keeps_them_apart_in_bfloat16():
    """Fails if biases of hundreds are rounded to bfloat16 before the softmax."""
    site = build("alibi", StackShape(1, 4, 4, 8, 32, False)).for_layer(0)
    attention = Attention(32, 4, encoding=site)
    initialize(attention, 0)
    attention = attention.bfloat16()
    x, memory = random(1, 400, 32).bfloat16(), random(1, 20, 32, seed=1).bfloat16()
    with torch.no_grad():
        fused = attention(x, memory).output
        exact = copy.deepcopy(attention).double()(x.double(), memory.double()).output
    assert (fused.double() - exact).abs().max() < 0.03


def test_another_batch_is_not_appended():
    """Fails if one sentence's keys are written to every row of a cache."""
    attention, cache = Attention(32, 4), KeyValueCache()
    with torch.no_grad():
        attention(torch.randn(2, 5, 32), cache=cache, causal=True)
        with pytest.raises(ValueError, match=r"keys must fit those in the cache, \(2, 4, 1, 8\)"):
            attention(torch.randn(1, 1, 32), cache=cache)
        with pytest.raises(ValueError, match=r"of torch\.float32, got .* of torch\.float64"):
            attention.double()(torch.randn(2, 1, 32).double(), cache=cache)
