"""What holds for every encoding: one result, however a sequence is cut, padded, packed or moved.

These fail if a cache, its beams, chunks, padding or packing change a result; if asking for
probabilities does; if an encoding that says that it is relative sees more than distances, or does
not see them; and if a method that allows no cache, or needs all raw keys, is given what it does not
allow. What each encoding computes is tested in the other files here.
"""

import encoding_cases as cases
import pytest
import torch
from encoding_cases import BACK, BOTH, attention_with, close, crossing, random
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.encodings import REGISTRY, AttentionEncoding, Placement
from ropewalk.model import Attention, KeyValueCache


class RawKeysSite(AttentionEncoding):
    """q·ζ^(m-c) and k·ζ^(c-n) (Sun et al. 2022): c, the middle, moves as tokens come: raw keys."""

    cached_keys = "raw"

    def rotate(self, q, k, placement):
        assert k is not None
        assert k.shape[-2] == len(placement.new_keys) == len(placement.keys)
        middle = len(placement.keys) // 2
        q = q * 0.9 ** (placement.queries - middle).double()[:, None]
        return q, k * 0.9 ** (middle - placement.new_keys).double()[:, None]


class UncachedSite(AttentionEncoding):
    """Positions relative to the last key, and a rotation of both that no cache can store."""

    cached_keys = "none"

    def rotate(self, q, k, placement):
        return q, k * (placement.keys[-1] - placement.new_keys + 1)[:, None]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """One class and one line each, and all that takes a name has them."""
    monkeypatch.setitem(REGISTRY, "raw_keys", cases.of_site(RawKeysSite))
    monkeypatch.setitem(REGISTRY, "uncached", cases.of_site(UncachedSite))


seeds = st.integers(0, 2**32 - 1)
attending = pytest.mark.parametrize("name", [*cases.ATTENDING, "raw_keys"])


@attending
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.sampled_from([4, 2, 1]), seeds)
@settings(max_examples=4)
def test_attention_on_a_cache_equals_computing_all_anew(name, steps, kv_heads, seed):
    cases.check_chunks(name, steps, seed, kv_heads)


CROSSING = [*cases.BIASES[::2], *cases.FIXED[1:2], *cases.LEARNED[2:], *cases.VALUES, *cases.XPOS]
CROSSING += ["shaw(distance=2)", "transformer_xl", "deberta(distance=2)", "cope(two_sided=True)"]


@pytest.mark.parametrize("name", [*cases.EVERY, *map(crossing, CROSSING)])
def test_a_transformer_gives_one_result(name):
    cases.check_transformer(name)


def test_a_transformer_decodes_with_raw_keys():
    cases.check_decoding(cases.transformer("raw_keys"))


@pytest.mark.parametrize("name", cases.EVERY)
@pytest.mark.parametrize("shape", [BACK, BOTH], ids=["back", "both"])
def test_packed_documents_are_each_as_alone(name, shape):
    cases.check_packing(name, shape)


@pytest.mark.parametrize("name", cases.RELATIVE)
@given(st.integers(-(2**30), 2**30), st.booleans(), seeds)
@settings(max_examples=6)
@torch.no_grad()
def test_relative_ones_see_distances_alone(name, shift, batched, seed):
    attention, x = attention_with(name, seed=seed), random(2, 6, 32, seed=seed)
    reach = 1000
    if "learned" in name:  # whose angles are products of float64
        shift %= 2**20
    if "xpos" in name:  # whose powers have an end
        shift, reach = shift % 500, 100
    generator = torch.Generator().manual_seed(seed)
    place = torch.randint(0, reach, (2, 6) if batched else (6,), generator=generator)
    place[..., :2] = 0
    at_home, away, wider = (
        attention(x, placement=Placement(p), causal=True, need_probabilities=True)
        for p in (place, place + shift, 3 * place + torch.arange(6))
    )
    exact = 1e-4 if name.startswith(("rotary", "xpos")) else 1e-9
    close(away.probabilities, at_home.probabilities, exact)
    close(away.output, at_home.output, exact)
    assert (wider.output - at_home.output).abs().max() > 1e-4


@pytest.mark.parametrize("kv_heads", [4, 2])
@attending
@torch.no_grad()
def test_probabilities_come_with_the_same_output(name, kv_heads):
    attention, x = attention_with(name, kv_heads, causal=False), random(2, 6, 32)
    memory, mask = random(2, 5, 32, seed=1), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    for arguments in ({"memory": memory, "mask": mask}, {"memory": memory}, {"causal": True}, {}):
        quick = attention(x, **arguments)
        shown = attention(x, **arguments, need_probabilities=True)
        assert quick.probabilities is None
        close(shown.output, quick.output)
        close(shown.probabilities.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
        if "mask" in arguments:
            assert (shown.probabilities[1, ..., 3:] == 0).all()
            if name != "raw_keys":  # whose middle is that of the padded memory
                close(attention(x[1:], memory[1:, :3]).output, quick.output[1:])


@attending
@torch.no_grad()
def test_a_cache_of_memory_stands_for_it(name):
    attention, x, memory = attention_with(name, causal=False), random(2, 4, 32), random(2, 5, 32)
    keys, cache = torch.arange(5), KeyValueCache()
    whole = attention(x, memory, placement=Placement(torch.arange(4), keys))
    for step in range(4):
        placement = Placement(torch.tensor([step]), keys)
        new = x[:, step : step + 1]
        part = attention(new, memory if step == 0 else 0 * memory, placement=placement, cache=cache)
        close(part.output, whole.output[:, step : step + 1])
        assert cache.length == 5
    with pytest.raises(ValueError, match=r"placement must be given for \w*Site in cross-attention"):
        attention(x, memory, cache=cache)


def test_each_stack_says_whether_it_looks_back_only():
    model = cases.transformer("t5(cross=True)")
    stacks = model.encoder_encoding, model.decoder_encoding, model.cross_encoding
    assert [encoding.shared.causal for encoding in stacks] == [False, True, False]


@pytest.mark.parametrize("name", ["t5", "shaw"])
def test_gradients_reach_an_encoding_as_well_without_probabilities(name):
    x, weights = random(2, 6, 32), random(2, 6, 32, seed=1)
    gradients = []
    for ask in (False, True):
        attention = attention_with(name)
        output = attention(x, causal=True, need_probabilities=ask).output
        (output * weights).sum().backward()
        gradients.append([p.grad for p in attention.encoding.parameters()])
        assert all(g.abs().max() > 1e-3 for g in gradients[-1])
    for quick, shown in zip(*gradients, strict=True):
        close(quick, shown)


def test_a_method_without_cache_says_so():
    attention, x = attention_with("uncached", 4), random(1, 3, 32)
    assert attention(x, causal=True).output.shape == x.shape
    with pytest.raises(
        ValueError, match="cache must be None: UncachedSite does not work with cached keys"
    ):
        attention(x, causal=True, cache=KeyValueCache())


@pytest.mark.parametrize("name", ["rotary", "xpos"])
def test_a_rope_of_another_head_dim_is_refused(name):
    attention = Attention(64, 4, encoding=cases.build(name, BACK).for_layer(0))
    with pytest.raises(ValueError, match=rf"head_dim=8 .* {name} .* got heads of 16 dimensions"):
        attention(torch.zeros(1, 2, 64))


NETWORK = {"c": (), "stretch": (), "weight": (32,), "offset": (32,), "output.weight": (4, 32)}
TUPE = {
    "table.weight": (50, 32),
    "norm.weight": (32,),
    "norm.bias": (32,),
    "query.weight": (32, 32),
    "key.weight": (32, 32),
}
PROJECTIONS = {"query.weight": (32, 32), "key.weight": (32, 32)}


@pytest.mark.parametrize(
    ("name", "own", "shared"),
    [
        *(
            (name, {}, {})
            for name in ("none", "sinusoidal", "integer", "binary", "alibi", "rotary")
        ),
        ("learned(max_positions=12)", {}, {"table.weight": (12, 32)}),
        ("t5", {}, {"shared.table.weight": (32, 4)}),
        ("kerple", {}, {"shared.r1": (4,), "shared.r2": (4,)}),
        ("fire", NETWORK, {}),
        ("fire(shared=True)", {}, {f"sites.0.{n}": shape for n, shape in NETWORK.items()}),
        ("tupe(max_positions=50)", {}, {f"shared.{n}": shape for n, shape in TUPE.items()}),
        (
            "tupe(max_positions=50, relative=True, reset=True)",
            {},
            {f"shared.{n}": shape for n, shape in TUPE.items()}
            | {"shared.first": (4,), "shared.relative.table.weight": (32, 4)},
        ),
        ("shaw", {"keys.weight": (33, 8), "values.weight": (33, 8)}, {}),
        ("shaw(distance=2, values=False)", {"keys.weight": (5, 8)}, {}),
        ("shaw(distance=1, per_head=True)", {"keys.weight": (12, 8), "values.weight": (12, 8)}, {}),
        ("transformer_xl", {"u": (4, 8), "v": (4, 8), "distance.weight": (32, 32)}, {}),
        ("deberta", PROJECTIONS, {"table.weight": (1024, 32)}),
        ("deberta(buckets=8)", PROJECTIONS, {"table.weight": (16, 32)}),
    ],
)
def test_each_has_the_parameters_that_it_says_and_each_is_named_once(name, own, shared):
    model = cases.transformer(name)
    found = {n: tuple(p.shape) for n, p in model.named_parameters() if "encoding" in n}
    expected = {}
    for stack in ("encoder_encoding", "decoder_encoding"):
        expected.update({f"{stack}.{n}": shape for n, shape in shared.items()})
        for layer in range(2):
            expected.update({f"{stack}.sites.{layer}.{n}": shape for n, shape in own.items()})
    assert found == expected
