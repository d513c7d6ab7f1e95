"""Encodings: how they are named and built, and what each computes.

These fail when a mistyped name or argument passes or is answered without the way out; when
sinusoids, a learned table or a rotation differ from their papers' formulas; when cross-attention is
encoded unasked; and when tables are formed once a layer, or kept from one pass to the next.
"""

import cmath
import contextlib
import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import RotaryEmbedding
from ropewalk.encodings import (
    REGISTRY,
    AttentionEncoding,
    Placement,
    StackShape,
    build,
    build_encoder_decoder,
    parse,
    split_names,
)
from ropewalk.model import Attention, DecoderCache, Transformer, TransformerShape

STACK = StackShape(layers=2, heads=4, kv_heads=2, head_dim=8, width=32, causal=True)
seeds = st.integers(0, 2**32 - 1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# Names


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "theta": st.floats(1e-3, 1e9) | st.integers(1, 10**9),
            "rotary_dim": st.none() | st.integers(2, 64),
            "pairing": st.sampled_from(["half", "interleaved"]),
            "cross": st.booleans(),
        },
    ),
    st.booleans(),
    st.sampled_from(["", " ", "\n"]),
)
def test_parse_reads_what_is_written(arguments, quoted, space):
    def written(value: object) -> str:
        return str(value) if isinstance(value, str) and not quoted else repr(value)

    inside = f",{space}".join(f"{key}{space}={written(v)}" for key, v in arguments.items())
    assert parse(f"{space}rotary{space}({inside}){space}") == ("rotary", arguments)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_bare_name_has_no_arguments(name):
    assert parse(name) == parse(f"{name}()") == (name, {})


@given(st.sampled_from(["", "rotary", "rotary("]), st.text("rotay()=,*1'{[]}: \0+-"))
def test_parse_answers_nonsense_with_value_error_alone(start, text):
    with contextlib.suppress(ValueError):
        parse(start + text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "encoding must read name or name(key=value, ...), got ''"),
        ("rotary theta=1", "encoding must read name or name(key=value, ...), got 'rotary theta=1'"),
        ("rotery", "must be one of none, sinusoidal, learned, rotary, got 'rotery'; did you mean"),
        ("Sinusoidal", "did you mean 'sinusoidal'?"),
        ("xyz", "encoding must be one of none, sinusoidal, learned, rotary, got 'xyz'"),
        (
            "rotary(thetta=1)",
            "'rotary' has no argument 'thetta'; it has theta, rotary_dim, pairing",
        ),
        ("rotary(thetta=1)", "did you mean 'theta'?"),
        ("none(theta=1)", "encoding 'none' has no argument 'theta'; it has cross"),
        ("rotary(shape=1)", "has no argument 'shape'"),
        ("rotary(self=1)", "has no argument 'self'"),
        (
            "rotary(1e6)",
            "arguments of encoding 'rotary' must read key=value, ..., each once, got '1e6'",
        ),
        ("rotary(**a)", "must read key=value, ..., each once, got '**a'"),
        ("rotary(theta=)", "must read key=value, ..., each once, got 'theta='"),
        ("rotary(theta=1, theta=2)", "must read key=value, ..., each once, got 'theta=1, theta=2'"),
        ("rotary(theta=1/3)", "must read key=value, ..., each once, got 'theta=1/3'"),
        ("rotary(theta={[]: 1})", "must read key=value"),
        ("rotary(theta=1) + f(2)", "must read key=value, ..., each once, got 'theta=1) + f(2'"),
        ("rotary(theta=1)(theta=2)", "must read key=value, ..., each once, got 'theta=1)(theta=2'"),
        ("rotary(cross=no)", "cross must be True or False, got 'no' for encoding 'rotary'"),
        ("rotary(cross=1)", "cross must be True or False, got 1"),
    ],
)
def test_a_mistyped_encoding_is_named_with_what_would_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


@given(
    st.lists(
        st.sampled_from(
            ["none", "rotary", "rotary()", "rotary(theta=1e6, cross=True)", "x(a=(1, (2, 3)), b=4)"]
        ),
        max_size=5,
    ),
    st.sampled_from([",", ", ", " ,"]),
)
def test_names_are_split_at_outer_commas_alone(names, comma):
    assert split_names(comma.join(names)) == names


# Building


@pytest.mark.parametrize(
    ("text", "parameters", "longest"),
    [
        ("none", 0, None),
        ("sinusoidal", 0, None),
        ("sinusoidal(theta=100)", 0, None),
        ("learned", 512 * 32, 512),
        ("learned(longest=7)", 7 * 32, 7),
        ("rotary", 0, None),
        ("rotary(theta=5e5, rotary_dim=4, pairing=interleaved)", 0, None),
    ],
)
def test_build(text, parameters, longest):
    encoding = build(text, STACK)
    assert sum(p.numel() for p in encoding.parameters()) == parameters
    assert encoding.longest == longest
    assert isinstance(encoding.site(1), AttentionEncoding)


def test_rotary_arguments_become_its_spec():
    spec = build("rotary(theta=5e5, rotary_dim=4, pairing=interleaved)", STACK).site(0).rope.spec
    assert (spec.head_dim, spec.theta, spec.rotary_dim, spec.pairing) == (8, 5e5, 4, "interleaved")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sinusoidal(theta=0)", "theta must be finite and above 0, got 0"),
        ("sinusoidal(theta=big)", "theta must be finite and above 0, got 'big'"),
        ("sinusoidal(theta=1e999)", "theta must be finite and above 0, got inf"),
        ("learned(longest=0)", "longest must be an int of at least 1, got 0"),
        ("learned(longest=2.5)", "longest must be an int of at least 1, got 2.5"),
        ("learned(longest=True)", "longest must be an int of at least 1, got True"),
        ("rotary(rotary_dim=10)", "rotary_dim must be at most head_dim=8, got 10"),
        ("rotary(cross=True)", "cross belongs to an encoder-decoder, not to one stack"),
    ],
)
def test_a_wrong_value_is_named(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(text, STACK)


def test_cross_attention_gets_an_encoding_only_when_asked():
    stacks = (dataclasses.replace(STACK, causal=False), STACK)
    assert build_encoder_decoder("rotary", *stacks).cross is None
    assert build_encoder_decoder("rotary(cross=False)", *stacks).cross is None
    cross = build_encoder_decoder("rotary(cross=True, theta=7)", *stacks).cross
    assert cross.site(0).rope.spec.theta == 7


@pytest.mark.parametrize("name", ["none", "sinusoidal", "learned"])
def test_cross_is_refused_where_nothing_acts_in_attention(name):
    with pytest.raises(ValueError, match=f"cross must be False for '{name}', got True: it does no"):
        build_encoder_decoder(f"{name}(cross=True)", STACK, STACK)


# What each computes


@given(st.integers(1, 33), st.lists(st.integers(0, 100_000), min_size=1), st.floats(10, 1e6))
def test_sinusoids_are_those_of_the_paper(width, positions, theta):
    encoding = build(f"sinusoidal(theta={theta})", dataclasses.replace(STACK, width=width))
    added = encoding.embed(torch.zeros(1, len(positions), width), torch.tensor(positions))
    for row, position in zip(added[0].tolist(), positions, strict=True):
        for column, value in enumerate(row):
            angle = position / theta ** (2 * (column // 2) / width)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(value - wave) < 1e-6


@pytest.mark.parametrize("name", ["sinusoidal", "learned(longest=9)"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_absolute_encodings_are_added_to_embeddings(name, dtype):
    encoding, x = build(name, STACK), random(2, 5, 32).to(dtype)
    positions = torch.tensor([[0, 1, 2, 3, 4], [4, 4, 8, 0, 1]])
    rows = encoding.embed(torch.zeros(1, 9, 32), torch.arange(9))[0]
    result = encoding.embed(x, positions)
    assert result.dtype == dtype
    assert torch.equal(result, x + rows[positions].to(dtype))
    assert torch.equal(encoding.embed(x, positions[0]), x + rows[positions[0]].to(dtype))
    site = encoding.site(0)
    assert type(site) is AttentionEncoding


@given(st.integers(1, 40), st.integers(-2, 45))
def test_a_learned_table_refuses_what_it_has_not_got(longest, position):
    encoding = build(f"learned(longest={longest})", dataclasses.replace(STACK, width=2))
    x, positions = torch.zeros(1, 2, 2), torch.tensor([0, position])
    if 0 <= position < longest:
        row = encoding.table.weight[position]
        assert torch.equal(encoding.embed(x, positions)[0, 1], row)
    elif position < 0:
        with pytest.raises(ValueError, match=f"positions must be at least 0, .* got {position}"):
            encoding.embed(x, positions)
    else:
        message = (
            f"must lie in 0..{longest - 1}, the rows of this learned table, got {position}; train "
            f"with learned(longest={position + 1}) or more, shorten the input, or choose an encod"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            encoding.embed(x, positions)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([2, 6, 8]),
    seeds,
)
def test_rotary_turns_each_pair_by_position_times_frequency(queries, keys, pairing, turning, seed):
    site = build(f"rotary(theta=100, pairing={pairing}, rotary_dim={turning})", STACK).site(0)
    q, k = random(1, 4, len(queries), 8, seed=seed), random(1, 2, len(keys), 8, seed=seed + 1)
    placement = Placement(torch.tensor(queries), torch.tensor(keys))
    turned = site.rotate(q, k, placement)
    for x, y, positions in ((q, turned[0], queries), (k, turned[1], keys)):
        expected = x.clone()
        for i in range(turning // 2):
            a, b = (i, i + turning // 2) if pairing == "half" else (2 * i, 2 * i + 1)
            for s, position in enumerate(positions):
                turn = cmath.exp(1j * position * 100 ** (-2 * i / turning))
                pair = torch.complex(x[..., s, a], x[..., s, b]) * turn
                expected[..., s, a], expected[..., s, b] = pair.real, pair.imag
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)


@given(st.integers(-(2**30), 2**30), st.booleans(), seeds)
@settings(max_examples=30)
def test_attention_with_rotary_sees_distances_alone(shift, batched, seed):
    attention = Attention(32, 4, kv_heads=2, encoding=build("rotary", STACK).site(0)).double()
    x = random(2, 6, 32, seed=seed)
    positions = torch.randint(0, 1000, (2, 6) if batched else (6,))
    at_home, away = (
        attention(x, placement=Placement(p), causal=True, need_probabilities=True)
        for p in (positions, positions + shift)
    )
    torch.testing.assert_close(away.probabilities, at_home.probabilities, rtol=0, atol=1e-5)
    torch.testing.assert_close(away.output, at_home.output, rtol=0, atol=1e-5)
    wider = attention(x, placement=Placement(3 * positions + 1), causal=True)
    assert (wider.output - at_home.output).abs().max() > 1e-4


def test_none_does_nothing():
    encoding = build("none", STACK)
    x, q, k = random(1, 3, 32), random(1, 4, 3, 8), random(1, 2, 3, 8)
    placement, site = Placement(torch.arange(3)), encoding.site(0)
    assert encoding.embed(x, placement.queries) is x
    assert site.rotate(q, k, placement) == (q, k)
    assert site.bias(placement) is None
    assert site.scale is None
    with pytest.raises(RuntimeError, match="says attends = False"):
        site.attend(q, k, k, placement, None)


def test_a_site_of_another_head_dim_is_refused():
    attention = Attention(64, 4, encoding=build("rotary", STACK).site(0))
    with pytest.raises(ValueError, match=r"head_dim=8 .* built for, got heads of 16 dimensions"):
        attention(torch.zeros(1, 2, 64))


# A placement lasts for one forward pass


def test_once_computes_once_under_each_key():
    placement, calls = Placement(torch.arange(3)), []

    def compute() -> int:
        calls.append(len(calls))
        return calls[-1]

    assert [placement.once(key, compute) for key in ("a", "a", ("b", 1), "a")] == [0, 0, 1, 0]
    assert Placement(torch.arange(3)).once("a", compute) == 2


def test_a_placement_stands_for_keys_like_queries_unless_told():
    one, two, three = (torch.arange(n) for n in (1, 2, 3))
    assert Placement(one).keys is one
    assert Placement(one).fresh is one
    assert Placement(one, two).fresh is two
    assert Placement(one, two, three).fresh is three


@pytest.mark.parametrize(("name", "in_decoder"), [("rotary", 1), ("rotary(cross=True)", 3)])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_forward_pass_forms_tables_once_for_all_layers(monkeypatch, name, in_decoder, layers):
    shape = TransformerShape(20, 32, 4, 64, layers, layers)
    stacks = shape.stack(causal=False), shape.stack(causal=True)
    model = Transformer(shape, *build_encoder_decoder(name, *stacks))
    formed, tables = [], RotaryEmbedding.tables

    def counted(self: RotaryEmbedding, positions: torch.Tensor) -> object:
        formed.append(positions.tolist())
        return tables(self, positions)

    monkeypatch.setattr(RotaryEmbedding, "tables", counted)
    source, target = torch.randint(4, 20, (2, 2, 5))
    for _ in range(2):  # and anew in the next pass
        memory = model.encode(source)
        assert len(formed) == 1
        model.decode(target, memory)
        assert len(formed) == 1 + in_decoder
        formed.clear()
    cache = DecoderCache(layers)
    for step in range(3):
        model.decode(target[:, step : step + 1], memory, cache=cache)
    assert formed.count([2]) == (1 if in_decoder == 1 else 2)
