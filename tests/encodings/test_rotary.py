"""Rotary as an encoding: every rope that a name can describe, in attention and in models.

These fail if arguments become another spec than they say, if scores or rotated values differ from
the papers' equations, and if learned frequencies get a wrong gradient or too few sets.
"""

import cmath
import dataclasses
import inspect
import re

import pytest
import torch
from encoding_cases import (
    BACK,
    BOTH,
    FIXED,
    LEARNED,
    VALUES,
    attention_with,
    close,
    random,
    randomise,
    recorded,
    transformer,
    words,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import LearnedRotaryEmbedding, RotaryEmbedding, RotarySpec, scaling
from ropewalk.encodings import Placement, build, parse
from ropewalk.encodings.rotary import Rotary, RotarySite
from ropewalk.model import Attention, KeyValueCache, initialize
from ropewalk.rotary.kernels import operator

transformers = pytest.importorskip(
    "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
)
roformer = pytest.importorskip("transformers.models.roformer.modeling_roformer")

EVERY = [*FIXED, *LEARNED, *VALUES, "rotary(values=absolute)"]
seeds = st.integers(0, 2**32 - 1)


# Arguments


LONG = {"short_factor": (1.0, 1.0, 1.0, 1.0), "long_factor": (1.0, 2.0, 3.0, 4.0)}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ("theta=5e5, rotary_dim=4, pairing=interleaved", {"theta": 5e5, "rotary_dim": 4,
                                                        "pairing": "interleaved"}),
        ("reverse=True", {"reverse": True}),
        ("rule=linear, factor=4", {"scaling": scaling.Linear(4)}),
        ("rule=NTKAware, factor=2.5", {"scaling": scaling.NTKAware(2.5)}),
        ("rule=dynamicntk, factor=4, original_length=256, length=900",
         {"scaling": scaling.DynamicNTK(4, 256)}),
        ("rule=yarn, factor=4, original_length=256, truncate=False, mscale=1, theta=1e6",
         {"scaling": scaling.YaRN(4, 256, truncate=False, mscale=1), "theta": 1e6}),
        ("rule='YaRN', factor=4, original_length=256", {"scaling": scaling.YaRN(4, 256)}),
        ("rule=longrope, short_factor=(1, 1, 1, 1), long_factor=[1, 2, 3, 4], original_length=64, "
         "length=65", {"scaling": scaling.LongRoPE(**LONG, original_length=64)}),
        ("rule=llama3, factor=8, low_freq_factor=1, high_freq_factor=4, original_length=512",
         {"scaling": scaling.Llama3(8, 1, 4, 512)}),
        ("rule=proportional, fraction=0.75", {"scaling": scaling.Proportional(0.75)}),
    ],
)  # fmt: skip
def test_arguments_become_the_spec(arguments, expected):
    site = build(f"rotary({arguments})", BACK).for_layer(0)
    assert site.rope.spec == RotarySpec(8, **expected)


def test_every_rule_and_all_of_its_fields_can_be_given():
    for rule in scaling.RULES:
        fields = list(inspect.signature(rule).parameters)
        known = Rotary.further_arguments({"rule": rule.__name__.lower()})
        assert known == [f.name for f in dataclasses.fields(rule)] == fields
        assert not set(known) & set(inspect.signature(Rotary).parameters)
        text = ", ".join(f"{field}=1" for field in fields)
        assert parse(f"rotary(rule={rule.__name__}, {text})")[1].keys() == {"rule", *fields}


@given(st.floats(1e-6, 100))
@settings(max_examples=20)
def test_one_frequency_is_that_of_every_pair_unrounded(frequency):
    spec = build(f"rotary(frequency={frequency!r}, rotary_dim=6)", BACK).for_layer(0).rope.spec
    assert spec.inverse_frequencies().tolist() == [frequency] * 3
    rotated = build(f"rotary(frequency={frequency!r}, reverse=True)", BACK).for_layer(0).rope.spec
    assert rotated.inverse_frequencies().tolist() == [-frequency] * 4


def test_wrong_arguments_are_named_in_python_as_well():
    with pytest.raises(TypeError, match="Rotary has no argument 'thetta'"):
        Rotary(BACK, thetta=3)
    with pytest.raises(ValueError, match="rule must be given with factor=3"):
        Rotary(BACK, factor=3)
    with pytest.raises(TypeError, match="facter"):
        Rotary(BACK, rule="linear", factor=3, facter=3)


# What is computed


def frequencies(name: str, site) -> Tensor:
    """Radians per position, (K, R/2): of each key head, if heads have their own."""
    rope = site.rope
    if isinstance(rope, LearnedRotaryEmbedding):
        return rope.frequencies[0].detach().double().expand(2, -1)
    rotated = rope.spec.rotary_dim
    plain = [rope.spec.theta ** (-2 * i / rotated) for i in range(rotated // 2)]
    if "frequency=0.3" in name:
        plain = [0.3] * 4
    elif "fraction=0.5" in name:
        plain = [*plain[:2], 0, 0]
    elif "reverse" in name:
        plain = [-f for f in plain]
    elif "dynamicntk" in name:  # theta * (s n/L - (s - 1))^(R/(R-2))
        theta = 10_000 * (2 * 6 / 3 - 1) ** (8 / 6)
        plain = [theta ** (-i / 4) for i in range(4)]
    elif "yarn" in name:  # other tests compare it with its papers
        plain = rope.spec.inverse_frequencies().tolist()
    return torch.tensor(plain, dtype=torch.float64).expand(2, -1)


def rotated(x: Tensor, position: int, speeds: Tensor, pairing: str) -> Tensor:
    """R_m x for one vector (D,): RoFormer, eq. 15."""
    out, rotary_dim = x.clone(), 2 * len(speeds)
    for i, speed in enumerate(speeds.tolist()):
        a, b = (i, i + rotary_dim // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        pair = complex(x[a], x[b]) * cmath.exp(1j * position * speed)
        out[a], out[b] = pair.real, pair.imag
    return out


def by_paper(name: str, attention: Attention, x: Tensor, place: list[int]) -> Tensor:
    """Causal attention of one sentence (S, 32), one query, key and head at a time.

    Scores q·R_(n-m) k (RoFormer, eq. 16), of what rotates times the amplitude squared; values as
    they are, rotated by n - m, or by n.
    """
    site, group = attention.encoding, 2
    spec, speeds = site.rope.spec, frequencies(name, site)
    amplitude = 0.1 * torch.log(torch.tensor(4.0)).item() + 1 if "yarn" in name else 1.0
    rotates = torch.zeros(8, dtype=torch.bool)
    rotates[: spec.rotary_dim] = True
    q, (k, v) = attention.query(x), attention.key_value(x).chunk(2, -1)
    output = torch.zeros_like(q)
    for h in range(4):
        own, shared = slice(8 * h, 8 * h + 8), slice(8 * (h // group), 8 * (h // group) + 8)
        rotate = lambda x, by, h=h: rotated(x, by, speeds[h // group], spec.pairing)  # noqa: E731
        for s, m in enumerate(place):
            scores, values = [], []
            for t, n in enumerate(place[: s + 1]):
                products = q[s, own] * rotate(k[t, shared], n - m)
                scores.append((products * torch.where(rotates, amplitude**2, 1.0)).sum() / 8**0.5)
                by = n - m if "values=True" in name else n if "values=abs" in name else 0
                values.append(rotate(v[t, shared], by))
            output[s, own] = torch.stack(scores).softmax(0) @ torch.stack(values)
    return attention.output(output)


@pytest.mark.parametrize("name", EVERY)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), seeds)
@settings(max_examples=6)
@torch.no_grad()
def test_attention_is_that_of_the_papers(name, place, seed):
    attention, x = attention_with(name, seed=seed), random(1, len(place), 32, seed=seed)
    output = attention(x, placement=Placement(torch.tensor(place)), causal=True).output
    close(output[0], by_paper(name, attention, x[0], place), 1e-5)


# Values


@pytest.mark.parametrize("kept", ["rotated", "raw"])
@torch.no_grad()
def test_rotated_values_are_cached_as_keys_are(kept):
    attention = attention_with("rotary(values=True)")
    attention.encoding.cached_keys = kept
    x, memory = random(2, 4, 32), random(2, 5, 32, seed=1)
    for across, whole in ((None, attention(x, causal=True)), (memory, attention(x, memory))):
        cache = KeyValueCache()
        for step in range(4):
            queries = torch.tensor([step])
            keys = torch.arange(5 if across is not None else step + 1)
            fresh = queries if across is None and kept == "rotated" else keys
            part = attention(
                x[:, step : step + 1],
                across,
                placement=Placement(queries, keys, fresh),
                cache=cache,
            )
            close(part.output, whole.output[:, step : step + 1])


@torch.no_grad()
def test_values_left_rotated_are_those_of_roformer_with_rotary_value():
    config = transformers.RoFormerConfig(
        hidden_size=32, num_attention_heads=4, rotary_value=True, max_position_embeddings=16,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = randomise(roformer.RoFormerSelfAttention(config))
    shape = dataclasses.replace(BOTH, kv_heads=4)
    name = "rotary(values=absolute, pairing=interleaved)"
    ours = Attention(32, 4, encoding=build(name, shape).for_layer(0)).double()
    ours.query.load_state_dict(theirs.query.state_dict())
    for part in ("weight", "bias"):
        joint = torch.cat((getattr(theirs.key, part), getattr(theirs.value, part)))
        getattr(ours.key_value, part).copy_(joint)
    ours.output.weight.copy_(torch.eye(32))
    ours.output.bias.zero_()
    table = roformer.RoFormerSinusoidalPositionalEmbedding(16, 8)
    table.weight.copy_(table.create_weight())
    x = random(2, 9, 32)
    expected = theirs(x, sinusoidal_pos=table((2, 9))[None, None].double())[0]
    close(ours(x).output, expected, 1e-5)


# Rules that depend on the length


@torch.no_grad()
def test_a_stated_length_is_served_however_few_tokens_come():
    rule = "rotary(rule=dynamicntk, factor=2, original_length=3, length="
    x, seen = random(1, 9, 32), []
    for length in (3, 6, 9):
        attention = attention_with(f"{rule}{length})")
        spec, rope = attention.encoding.rope.spec, attention.encoding.rope
        cos, _ = rope.tables(torch.tensor([1]), length)
        close(cos[0].double(), spec.inverse_frequencies(length).cos())
        whole = attention(x, causal=True).output
        for end in (1, 4, 9):  # results of a beginning do not change with later tokens
            close(attention(x[:, :end], causal=True).output, whole[:, :end])
        seen.append(whole)
    assert (seen[0] - seen[1]).abs().max() > 1e-3
    assert (seen[1] - seen[2]).abs().max() > 1e-3


# Learned frequencies


@pytest.mark.parametrize(
    ("name", "sets", "sites"),
    [("True", (1, 1, 4), 1), ("layer", (1, 1, 4), 3), ("head", (1, 2, 4), 3)],
)
def test_there_are_as_many_sets_of_frequencies_as_asked_for(name, sets, sites):
    encoding = build(f"rotary(learned={name})", dataclasses.replace(BACK, layers=3))
    parameters = {p: p.shape for layer in range(3) for p in encoding.for_layer(layer).parameters()}
    assert list(parameters.values()) == [sets] * sites
    assert set(parameters) == set(encoding.parameters())


@pytest.mark.parametrize("name", LEARNED)
@torch.no_grad()
def test_learned_frequencies_start_as_the_fixed_ones(name):
    model = transformer(name)
    fixed = transformer(re.sub(r"learned=\w+(, )?", "", name))
    for part in model.modules():
        if isinstance(part, LearnedRotaryEmbedding):
            part.reset_parameters()
    initialize(model, 5)  # which keeps them
    initialize(fixed.double(), 5)
    source, target = words(2, 6), words(2, 6, seed=1)
    close(model(source, target), fixed(source, target), 1e-5)


@pytest.mark.parametrize("name", [*LEARNED, "rotary(learned=head, values=True)"])
def test_gradients_of_learned_frequencies_are_those_of_the_formula(name):
    attention, x = attention_with(name), random(1, 4, 32)
    frequencies = attention.encoding.rope.frequencies

    def output(values: Tensor) -> Tensor:
        state = {"encoding.rope.frequencies": values}
        arguments = {"placement": Placement(torch.tensor([0, 3, 4, 9])), "causal": True}
        return torch.func.functional_call(attention, state, (x,), arguments).output

    assert torch.autograd.gradcheck(output, (frequencies.detach().clone().requires_grad_(),))


def test_gradients_reach_the_frequencies_of_every_layer_and_stack():
    for name in ("True", "layer", "head"):
        model = transformer(f"rotary(learned={name}, cross=True)")
        model(words(2, 5), words(2, 5, seed=1)).square().sum().backward()
        learned = [p for n, p in model.named_parameters() if n.endswith("frequencies")]
        assert len(learned) == (3 if name == "True" else 6)
        assert all(p.grad.abs().max() > 1e-6 for p in learned)


@pytest.mark.parametrize(
    ("name", "forming"),
    [
        ("rotary(cross=True)", [1, 3]),
        ("rotary(values=True, rule=yarn, factor=4, original_length=64, theta=100)", [1, 1]),
        ("rotary(learned=True)", [1, 1]),
        ("rotary(learned=layer)", [3, 3]),
    ],
)
def test_a_pass_forms_tables_once_for_all_that_share_frequencies(monkeypatch, name, forming):
    model = transformer(name, layers=3)
    rope = type(model.encoder_encoding.for_layer(0).rope)
    formed = recorded(monkeypatch, rope, "tables")
    for _ in range(2):  # and again in the next pass
        formed.clear()
        memory = model.encode(words(2, 5))
        assert len(formed) == forming[0]
        model.decode(words(2, 5), memory)
        assert len(formed) == sum(forming)


SPECS = [
    RotarySpec(8, rotary_dim=4, start=2),
    RotarySpec(8, pairing="interleaved", write_pairing="half"),
    RotarySpec(8, blocks=(4, 4)),
    RotarySpec(8, reverse=True, amplitude=1.25),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_site_honors_every_field_of_its_spec(spec):
    rope = RotaryEmbedding(spec)
    site, q, k = RotarySite(rope), random(2, 4, 5, 8), random(2, 2, 5, 8, seed=1)
    queries, keys = torch.arange(7, 12), torch.arange(5)
    together = site.rotate(q, k, Placement(queries))
    apart = site.rotate(q, k, Placement(queries, keys))
    for found, where in ((together, queries), (apart, keys)):
        expected = rope(q, k, queries, where)
        for x, y in zip(found, expected, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_values_come_back_by_every_field_of_the_spec(spec):
    site = RotarySite(RotaryEmbedding(spec), values=True, back=True)
    v, place = random(2, 4, 5, 8), Placement(torch.arange(7, 12))
    torch.testing.assert_close(site.restore(site.rotate_values(v, place), place), v)


def test_queries_and_keys_of_one_placement_rotate_in_one_call(monkeypatch):
    calls = recorded(monkeypatch, operator, "dispatch")
    site = RotarySite(RotaryEmbedding(RotarySpec(8)))
    site.rotate(random(1, 4, 5, 8), random(1, 2, 5, 8), Placement(torch.arange(5)))
    assert [len(call[0]) for call in calls] == [2]
