"""xPos as an encoding: a rotation whose scores decay with the distance of earlier keys.

These fail if a score differs from the paper's, if it depends on the center or on anything but the
distance, if tables are computed once per layer, and if a stack that looks both ways gets scores
that grow ahead without a request.
"""

import cmath
import re

import pytest
import torch
from encoding_cases import BACK, BOTH, attention_with, random, recorded, transformer, words
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import XPosEmbedding
from ropewalk.encodings import Placement, build, build_encoder_decoder
from ropewalk.encodings.rotary import RotarySite

seeds = st.integers(0, 2**32 - 1)
positions = st.lists(st.integers(0, 900), min_size=1, max_size=4)


def paper(q, k, m: int, n: int, pairing: str, rotated: int, theta: float, base: float):
    """The score of a query at m and a key at n: Sun et al. 2022, algorithm 1."""
    score = q[rotated:] @ k[rotated:]
    for i in range(rotated // 2):
        a, b = (i, i + rotated // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        zeta = (2 * i + 0.4 * rotated) / (1.4 * rotated)
        frequency = theta ** (-2 * i / rotated)
        one = complex(q[a], q[b]) * cmath.exp(1j * m * frequency) * zeta ** (m / base)
        other = complex(k[a], k[b]) * cmath.exp(1j * n * frequency) * zeta ** (-n / base)
        score += (one * other.conjugate()).real
    return score


@given(
    positions,
    positions,
    st.sampled_from(["half", "interleaved"]),
    st.sampled_from([2, 6, 8]),
    st.sampled_from([-50, 0, 400.5]),
    st.sampled_from([200, 512.0]),
    seeds,
)
def test_scores_are_those_of_the_paper(queries, keys, pairing, rotated, center, base, seed):
    arguments = f"theta=100, pairing={pairing}, rotary_dim={rotated}, scale_base={base}"
    site = build(f"xpos({arguments}, center={center})", BACK).for_layer(0)
    q, k = random(1, 4, len(queries), 8, seed=seed), random(1, 4, len(keys), 8, seed=seed + 1)
    placement = Placement(torch.tensor(queries), torch.tensor(keys))
    turned_q, turned_k = site.rotate(q, k, placement)
    scores = turned_q[0, 0] @ turned_k[0, 0].mT
    for s, m in enumerate(queries):
        for t, n in enumerate(keys):
            expected = paper(q[0, 0, s], k[0, 0, t], m, n, pairing, rotated, 100, base)
            bound = 1e-5 * max(1, 0.28 ** ((m - n) / base))
            assert abs(scores[s, t] - expected) < bound


def test_a_pass_forms_tables_of_queries_and_of_keys_once(monkeypatch):
    model = transformer("xpos(both_ways=xpos)", layers=3)
    calls = recorded(monkeypatch, XPosEmbedding, "tables")
    memory = model.encode(words(2, 5))
    assert [call[2:] for call in calls] == [(torch.float64, False), (torch.float64, True)]
    model.decode(words(2, 5), memory)
    assert [call[2:] for call in calls[2:]] == [call[2:] for call in calls[:2]]


@torch.no_grad()
def test_in_bfloat16_tables_stay_in_float32():
    attention, x = attention_with("xpos(scale_base=30)").float(), random(1, 300, 32).float()
    expected = attention(x, causal=True).output
    with torch.autocast("cpu", torch.bfloat16):
        received = attention(x, causal=True).output
    assert (received.float() - expected).abs().max() < 0.05 * expected.abs().max()


# Attention that looks both ways


def test_a_stack_that_looks_both_ways_has_to_say_what_acts_there():
    message = (
        "both_ways must be rotary or xpos in an encoder or in cross-attention, which look both "
        "ways, got None: xPos is for causal attention, because its scores grow"
    )
    build("xpos", BACK)
    for refused in (
        lambda: build("xpos", BOTH),
        lambda: build_encoder_decoder("xpos", BOTH, BACK),
        lambda: build_encoder_decoder("xpos(cross=True)", BOTH, BACK),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            refused()


def test_both_ways_is_rotation_alone_or_the_formula_as_it_stands():
    q, k, placement = random(1, 4, 9, 8), random(1, 2, 9, 8, seed=1), Placement(torch.arange(9))
    plain = build("rotary(theta=7)", BOTH).for_layer(0).rotate(q, k, placement)
    scaled = build("xpos(theta=7)", BACK).for_layer(0).rotate(q, k, placement)
    assert not torch.equal(plain[0], scaled[0])
    for both_ways, expected in (("rotary", plain), ("xpos", scaled)):
        name = f"xpos(theta=7, both_ways={both_ways})"
        received = build(name, BOTH).for_layer(0).rotate(q, k, placement)
        assert all(map(torch.equal, received, expected))
        looking_back = build(name, BACK).for_layer(0).rotate(q, k, placement)
        assert all(map(torch.equal, looking_back, scaled))
    parts = build_encoder_decoder("xpos(both_ways=rotary, cross=True)", BOTH, BACK)
    assert [type(part.for_layer(0)) is RotarySite for part in parts] == [True, False, True]


def test_positions_out_of_reach_are_refused():
    attention = attention_with("xpos(center=100)")
    for position in (17_098, -16_898):
        message = f"must be within 16997 of center=100 if x is torch.float32, got {position}"
        with pytest.raises(ValueError, match=re.escape(message)):
            attention.float()(torch.zeros(1, 1, 32), placement=Placement(torch.tensor([position])))
