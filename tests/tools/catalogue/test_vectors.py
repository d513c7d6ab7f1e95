"""The library reproduces the test vectors, which were computed without it.

These fail if a kernel, a table or a rule is wrong for any kind of rope, if the formula of the
vectors and the library differ for a rope that nobody chose, and if a rule has no vector. That a
mistake shows is tested with the conformance vectors, of which these are a part.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_scripts

from ropewalk import RotaryEmbedding, axes, tools
from ropewalk.rotary.config.rope_fields import RULES_BY_ROPE_TYPE
from ropewalk.tools.catalogue.entries import rotary_spec

VECTORS = tools.catalogue_vectors()
STATED_ERROR = 1e-7  # of cos and sin, up to position 2^31


def rotated(vector, spec, x):
    q = torch.tensor(x, dtype=torch.float64)[None, None]
    positions = torch.tensor(vector.positions)
    return RotaryEmbedding(spec).rotate(q, positions, length=vector.length)[0, 0]


def bound(spec, length, x):
    """Return how far a number may be off: both of its pair have an error of cos or sin."""
    largest = max(abs(value) for row in x for value in row)
    return STATED_ERROR * spec.amplitude_at(length) * 2 * largest


@pytest.mark.parametrize("name", VECTORS)
def test_the_library_reproduces(name):
    vector = VECTORS[name]
    spec = rotary_spec(vector.spec)
    for x, expected in ((vector.q, vector.rotated_q), (vector.k, vector.rotated_k)):
        off = rotated(vector, spec, x) - torch.tensor(expected, dtype=torch.float64)
        assert off.abs().max() <= bound(spec, vector.length, x)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mrope-sectioned", axes.sectioned((2, 3, 3))),
        ("mrope-interleaved", axes.interleaved((4, 2, 2))),
        ("mrope-interleaved-first", axes.interleaved((2, 1, 1))),
        ("mrope-ernie", axes.ernie((3, 3, 2))),
        ("mrope-round-robin-first", axes.round_robin(4)),
        ("axial", axes.axial((4, 4))),
        ("axial-width-first", axes.axial((4, 4), order=(1, 0))),
        ("axial-alternating-interleaved", axes.alternating(4)),
        ("axial-width-first-alternating", axes.alternating(4, order=(1, 0))),
        ("axial-time-too", axes.axial((2, 2, 2))),
        ("axial-pixtral", axes.pixtral(16)),
    ],
)
def test_axes_are_those_of_the_library(name, expected):
    """Fails if the order that was written by hand is not the one that the name says."""
    assert rotary_spec(VECTORS[name].spec).axes == expected


def test_vectors_have_every_rule_and_numbers_that_differ():
    """A number that a dimension shares with another could hide that they were exchanged."""
    rules = {vector.spec["scaling"]["rope_type"] for vector in VECTORS.values()}
    assert rules == {*RULES_BY_ROPE_TYPE, "default"}
    assert any(2**31 - 1 in vector.positions for vector in VECTORS.values())
    for vector in VECTORS.values():
        for row in (*vector.q, *vector.k):
            assert len(set(row)) == len(row) == vector.spec["head_dim"]
            assert all(value * 8 == int(value * 8) != 0 for value in row)


PAIRINGS = st.sampled_from(["half", "interleaved"])


@given(
    st.integers(1, 8),
    st.integers(0, 3),
    st.integers(0, 3),
    st.floats(2.0, 1e7),
    PAIRINGS,
    PAIRINGS,
    st.booleans(),
    st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=3),
)
def test_the_formula_and_the_library_agree(pairs, start, rest, theta, read, write, back, positions):
    pytest.importorskip("mpmath", reason="computes the vectors: pip install 'ropewalk[dev]'")
    (formulas,) = load_scripts("conformance", "formulas")
    fields = {
        "head_dim": start + 2 * pairs + rest,
        "rotary_dim": 2 * pairs,
        "start": start,
        "theta": theta,
        "pairing": read,
        "write_pairing": write,
        "reverse": back,
    }
    spec = formulas.PLAIN | fields
    x = [(i % 16 + 1) / 8 for i in range(spec["head_dim"])]
    with formulas.mpmath.workdps(formulas.DIGITS):
        found = formulas.levels(spec, positions, None)
        exact = [list(map(float, y)) for y in formulas.rotated(spec, found, [x] * len(positions))]
    rope = RotaryEmbedding(rotary_spec(spec))
    rows = torch.tensor([x] * len(positions), dtype=torch.float64)[None, None]
    off = rope.rotate(rows, torch.tensor(positions))[0, 0] - torch.tensor(exact)
    assert off.abs().max() <= STATED_ERROR * 4


def plain_error(name: str, dtype: torch.dtype) -> list[float]:
    """Return how far plain code of this precision is off at each position, in pairing half."""
    vector = VECTORS[name]
    half = vector.spec["rotary_dim"] // 2
    theta = torch.tensor(vector.spec["theta"], dtype=dtype)
    frequencies = 1 / theta ** (torch.arange(half, dtype=dtype) / half)
    errors = []
    for x, m, expected in zip(vector.q, vector.positions, vector.rotated_q, strict=True):
        angles = torch.tensor(m, dtype=dtype) * frequencies
        first, second = torch.tensor(x, dtype=dtype).chunk(2)
        turned = (first * angles.cos() - second * angles.sin(),
                  second * angles.cos() + first * angles.sin())  # fmt: skip
        off = torch.cat(turned).double() - torch.tensor(expected, dtype=torch.float64)
        errors.append(off.abs().max().item())
    return errors


def test_errors_of_plain_code_are_those_that_the_page_states():
    assert max(plain_error("half", torch.float64)) <= 1e-12
    near, at_17, at_4095 = plain_error("half", torch.float32)[1:]
    assert max(near, at_17) <= 2e-7
    assert at_4095 == pytest.approx(1e-4, rel=0.5)
    assert max(plain_error("half-far", torch.float64)) == pytest.approx(5e-8, rel=0.5)
    at_ten_million = plain_error("half-far", torch.float32)[1]
    assert math.isclose(at_ten_million, 0.2, rel_tol=0.5)
