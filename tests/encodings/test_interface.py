"""The interface supports encodings that act in other places than those in the registry.

Throw-away versions of ALiBi and T5 (on scores), Shaw (on scores and values), xPos (raw keys cached)
and of one that allows no cache are registered here and must work as defined, in attention and in a
transformer. These fail if a bias is added before the scale, if a scale of 1 is ignored, if cached
decoding differs from computing everything again, if requesting probabilities changes the output, if
a shared table becomes one per layer, or if gradients don't reach an encoding.
"""

import dataclasses
import math

import pytest
import torch
from encoding_cases import check_decoding, random
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ropewalk.encodings import (
    REGISTRY,
    Attended,
    AttentionEncoding,
    Encoding,
    Placement,
    StackShape,
    build,
    build_encoder_decoder,
)
from ropewalk.model import (
    Attention,
    KeyValueCache,
    Transformer,
    TransformerShape,
    attention_probabilities,
    initialize,
)

STACK = StackShape(layers=2, heads=4, kv_heads=2, head_dim=8, width=32, causal=True)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    return x[:, None]


# The encodings


class ALiBi(Encoding):
    """-2^(-8h/H) · |i - j| on the scores (Press et al. 2021), the same in all layers."""

    class Site(AttentionEncoding):
        def __init__(self, heads: int) -> None:
            super().__init__()
            self.slopes = [2 ** (-8 * (h + 1) / heads) for h in range(heads)]

        def bias(self, placement: Placement) -> torch.Tensor:
            return placement.memoize("alibi", lambda: self._bias(placement.queries, placement.keys))

        def _bias(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            distance = (rows_of(queries) - keys).abs()
            return -torch.tensor(self.slopes)[:, None, None] * distance

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shared = self.Site(shape.heads)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class T5(Encoding):
    """b_h[bucket(j - i)] on unscaled scores (Raffel et al. 2019); layers share one table."""

    class Site(AttentionEncoding):
        scale = 1.0

        def __init__(self, shape: StackShape) -> None:
            super().__init__()
            self.causal = shape.causal
            self.table = nn.Embedding(32, shape.heads)
            self.formed = 0

        def bucket(self, distance: int) -> int:
            """Half the buckets for each sign where both occur; half of those exact, then log."""
            buckets, offset = (32, 0) if self.causal else (16, 16 * (distance > 0))
            far = max(0, -distance) if self.causal else abs(distance)
            exact = buckets // 2
            if far >= exact:
                log = math.log(far / exact) / math.log(128 / exact) * (buckets - exact)
                far = min(exact + int(log), buckets - 1)
            return offset + far

        def bias(self, placement: Placement) -> torch.Tensor:
            return placement.memoize("t5", lambda: self._bias(placement.queries, placement.keys))

        def _bias(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            self.formed += 1
            buckets = [[self.bucket(j - i) for j in keys.tolist()] for i in queries.tolist()]
            return self.table(torch.tensor(buckets)).movedim(-1, 0)

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shared = self.Site(shape)

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class Shaw(Encoding):
    """q·(k + a^K_c)/√d, and Σ α (v + a^V_c), with c = clip(j - i, ±K) (Shaw et al. 2018)."""

    class Site(AttentionEncoding):
        attends = True
        reach = 3

        def __init__(self, shape: StackShape) -> None:
            super().__init__()
            self.keys = nn.Embedding(2 * self.reach + 1, shape.head_dim)
            self.values = nn.Embedding(2 * self.reach + 1, shape.head_dim)

        def attend(self, q, k, v, placement, mask, need_probabilities=False):
            distance = placement.keys - rows_of(placement.queries)
            clipped = distance.clamp(-self.reach, self.reach) + self.reach
            scores = q @ k.mT + torch.einsum("bhsd,std->bhst", q, self.keys(clipped))
            scores = scores * q.shape[-1] ** -0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
            p = scores.softmax(-1)
            output = p @ v + torch.einsum("bhst,std->bhsd", p, self.values(clipped))
            return Attended(output, p if need_probabilities else None)

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.sites = nn.ModuleList(self.Site(shape) for _ in range(shape.layers))

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.sites[layer]


class XPosLike(Encoding):
    """q·ζ^(m-c) and k·ζ^(c-n) (Sun et al. 2022): c, the middle, moves as tokens come: raw keys."""

    class Site(AttentionEncoding):
        cached_keys = "raw"

        def rotate(self, q, k, placement):
            assert k is not None
            assert k.shape[-2] == len(placement.new_keys) == len(placement.keys)
            middle = len(placement.keys) // 2
            q = q * 0.9 ** rows_of(placement.queries - middle)
            return q, k * 0.9 ** rows_of(middle - placement.new_keys)

    def __init__(self, shape: StackShape) -> None:
        super().__init__()

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.Site()


class Uncached(Encoding):
    """Positions relative to the last key, and a rotation of both that no cache can store."""

    class Site(AttentionEncoding):
        cached_keys = "none"

        def rotate(self, q, k, placement):
            return q, k * rows_of(placement.keys[-1] - placement.new_keys + 1)

    def __init__(self, shape: StackShape) -> None:
        super().__init__()

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.Site()


PUBLISHED = {"alibi": ALiBi, "t5": T5, "shaw": Shaw, "xpos": XPosLike}
BOTH_WAYS = {"cope": "cope(two_sided=True)"}  # required arguments in encoders
EVERY = [BOTH_WAYS.get(name, name) for name in (*REGISTRY, *PUBLISHED)]
WRITTEN_OUT = ["none", "rotary", *PUBLISHED]  # in `score`
NOT_IN_ATTENTION = ("none", "integer", "binary", "sinusoidal", "learned")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """One class and one line each, and all that takes a name has them."""
    for name, encoding in {**PUBLISHED, "uncached": Uncached}.items():
        monkeypatch.setitem(REGISTRY, name, encoding)


def attention_with(name: str, kv_heads: int, *, causal: bool = True, seed: int = 0) -> Attention:
    shape = dataclasses.replace(STACK, kv_heads=kv_heads, causal=causal)
    attention = Attention(32, 4, kv_heads=kv_heads, encoding=build(name, shape).for_layer(0))
    initialize(attention, seed)
    return attention.double().eval()


def transformer(name: str, *, layers: int = 2, kv_heads: int = 2, seed: int = 0) -> Transformer:
    shape = TransformerShape(20, 32, 4, 64, layers, layers, kv_heads=kv_heads)
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Transformer(shape, *build_encoder_decoder(name, *stacks))
    initialize(model, seed)
    return model.double().eval()


def score(site: AttentionEncoding, q, k, h: int, i: int, j: int) -> torch.Tensor:
    """The score of one query at i and one key at j, as section 3 of each paper has it."""
    d = len(q)
    match site:
        case ALiBi.Site():
            return q @ k / math.sqrt(d) - 2 ** (-8 * (h + 1) / 4) * abs(i - j)
        case T5.Site():
            return q @ k + site.table.weight[site.bucket(j - i), h]
        case Shaw.Site():
            return q @ (k + site.keys.weight[max(-3, min(3, j - i)) + 3]) / math.sqrt(d)
        case XPosLike.Site():
            return q @ k * 0.9 ** (i - j) / math.sqrt(d)
    rope = getattr(site, "rope", None)
    if rope is not None:
        q = rope.rotate(q[None], torch.tensor([i]))[0]
        k = rope.rotate(k[None], torch.tensor([j]))[0]
    return q @ k / math.sqrt(d)


def naive(attention: Attention, x, queries, keys) -> torch.Tensor:
    """Attention of one sentence (S, width), causal, one score at a time."""
    site, group = attention.encoding, attention.heads // attention.kv_heads
    q, kv = attention.query(x), attention.key_value(x)
    output = torch.zeros_like(q)
    for h in range(attention.heads):
        mine = slice(8 * h, 8 * h + 8)
        k = kv[:, 8 * (h // group) :][:, :8]
        v = kv[:, 8 * (attention.kv_heads + h // group) :][:, :8]
        for s, i in enumerate(queries):
            seen = list(enumerate(keys))[: s + 1]
            p = torch.stack([score(site, q[s, mine], k[t], h, i, j) for t, j in seen]).softmax(0)
            for t, j in seen:
                value = v[t]
                if isinstance(site, Shaw.Site):
                    value = value + site.values.weight[max(-3, min(3, j - i)) + 3]
                output[s, mine] += p[t] * value
    return attention.output(output)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("name", WRITTEN_OUT)
@torch.no_grad()
def test_attention_computes_each_as_its_paper_defines_it(name, kv_heads):
    attention, x = attention_with(name, kv_heads), random(2, 7, 32)
    expected = torch.stack([naive(attention, one, range(7), range(7)) for one in x])
    torch.testing.assert_close(attention(x, causal=True).output, expected, rtol=0, atol=1e-5)


@given(st.data(), st.sampled_from(EVERY), st.sampled_from([4, 2, 1]), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
@torch.no_grad()
def test_decoding_on_a_cache_equals_computing_all_anew(data, name, kv_heads, seed):
    attention, x = attention_with(name, kv_heads, seed=seed), random(2, 9, 32, seed=seed)
    whole = attention(x, causal=True, need_probabilities=True)
    steps = data.draw(st.lists(st.integers(1, 4), min_size=9, max_size=9), label="tokens a step")
    cache, past = KeyValueCache(), 0
    for step in steps:
        new = x[:, past : past + step]
        for ask in (False, True):  # asking for probabilities must leave the output alone
            held = KeyValueCache()
            if past:
                held.append(*cache.held())
            part = attention(new, causal=True, cache=held, need_probabilities=ask)
            end = past + new.shape[1]
            torch.testing.assert_close(part.output, whole.output[:, past:end], rtol=0, atol=1e-6)
        seen = whole.probabilities[:, :, past:end, :end]
        torch.testing.assert_close(part.probabilities, seen, rtol=0, atol=1e-6)
        cache, past = held, end
        if past == 9:
            break


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_probabilities_come_with_the_same_output(name, kv_heads):
    attention, x = attention_with(name, kv_heads, causal=False), random(2, 6, 32)
    memory, mask = random(2, 5, 32, seed=1), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    for arguments in ({"memory": memory, "mask": mask}, {"memory": memory}, {"causal": True}, {}):
        quick = attention(x, **arguments)
        shown = attention(x, **arguments, need_probabilities=True)
        assert quick.probabilities is None
        torch.testing.assert_close(shown.output, quick.output, rtol=0, atol=1e-6)
        ones = torch.ones(2, 4, 6, dtype=torch.float64)
        torch.testing.assert_close(shown.probabilities.sum(-1), ones, rtol=0, atol=1e-6)
        if "mask" in arguments:
            assert (shown.probabilities[1, ..., 3:] == 0).all()
            shorter = attention(x[1:], memory[1:, :3])
            if name != "xpos":  # whose middle is that of the padded memory, as torchscale has it
                torch.testing.assert_close(shorter.output, quick.output[1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in EVERY if n not in NOT_IN_ATTENTION])
@torch.no_grad()
def test_a_cache_of_memory_stands_for_it(name):
    attention, x, memory = attention_with(name, 2, causal=False), random(2, 4, 32), random(2, 5, 32)
    keys, cache = torch.arange(5), KeyValueCache()
    whole = attention(x, memory, placement=Placement(torch.arange(4), keys))
    for step in range(4):
        placement = Placement(torch.tensor([step]), keys)
        new = x[:, step : step + 1]
        part = attention(new, memory if step == 0 else 0 * memory, placement=placement, cache=cache)
        expected = whole.output[:, step : step + 1]
        torch.testing.assert_close(part.output, expected, rtol=0, atol=1e-6)
        assert cache.length == 5
    with pytest.raises(ValueError, match=r"placement must be given for \w*Site in cross-attention"):
        attention(x, memory, cache=cache)


@pytest.mark.parametrize(
    "name", [*EVERY, "rotary(cross=True)", "t5(cross=True)", "shaw(cross=True)"]
)
def test_a_transformer_decodes_with_each_on_its_cache(name):
    check_decoding(name)


def test_what_layers_share_is_one_parameter_formed_once():
    model = transformer("t5", layers=3)
    tables = [n for n, _ in model.named_parameters() if n.endswith("shared.table.weight")]
    assert tables == [f"{stack}_encoding.shared.table.weight" for stack in ("encoder", "decoder")]
    model(torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 5)))
    assert model.encoder_encoding.shared.formed == model.decoder_encoding.shared.formed == 1
    assert len([n for n, _ in transformer("shaw").named_parameters() if "sites" in n]) == 8


def test_each_stack_says_whether_it_looks_back_only():
    model = transformer("t5(cross=True)")
    stacks = model.encoder_encoding, model.decoder_encoding, model.cross_encoding
    assert [encoding.shared.causal for encoding in stacks] == [False, True, False]


@pytest.mark.parametrize("name", ["t5", "shaw"])
def test_gradients_reach_an_encoding_as_well_without_probabilities(name):
    x, weights = random(2, 6, 32), random(2, 6, 32, seed=1)
    gradients = []
    for ask in (False, True):
        attention = attention_with(name, 2)
        output = attention(x, causal=True, need_probabilities=ask).output
        (output * weights).sum().backward()
        gradients.append([p.grad for p in attention.encoding.parameters()])
        assert all(g.abs().max() > 1e-3 for g in gradients[-1])
    for quick, shown in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, shown, rtol=0, atol=1e-6)


def test_a_method_without_cache_says_so():
    attention, x = attention_with("uncached", 4), random(1, 3, 32)
    assert attention(x, causal=True).output.shape == x.shape
    with pytest.raises(ValueError, match="cache must be None: Site does not work with cached keys"):
        attention(x, causal=True, cache=KeyValueCache())


@torch.no_grad()
def test_bias_and_mask_act_together():
    attention, x = attention_with("alibi", 2), random(2, 5, 32)
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]], dtype=torch.bool)[:, None, None, :]
    q = attention.query(x).unflatten(-1, (4, 8)).transpose(1, 2)
    k, v = attention.key_value(x).unflatten(-1, (2, 2, 8)).movedim((2, 3), (0, 2))
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    bias = attention.encoding.bias(Placement(torch.arange(5)))
    p = attention_probabilities(q, k, 8**-0.5, bias, mask & torch.ones(5, 5).tril().bool())
    expected = attention.output((p @ v).transpose(1, 2).flatten(2))
    result = attention(x, mask=mask, causal=True).output
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)
