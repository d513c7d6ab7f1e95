"""The new order of rows: a bijection with an inverse, after which scores are the same.

These fail if a row is lost or doubled, if converting back does not restore the order, or if queries
and keys of the new order, rotated by the other pairing, give other scores.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import RotarySpec
from ropewalk.tools.convert import row_permutation
from ropewalk.tools.convert.row_permutation import Heads, latent_key, order_of_rows, permuted

PAIRINGS = ("half", "interleaved")
NAMES = """queries keys one_head gated_queries blocks_of_heads head_by_head groups_of_heads
codegen_blocks"""
PLACES = [latent_key(12), *(getattr(row_permutation, name) for name in NAMES.split())]


@st.composite
def ropes(draw):
    rotary_dim = 2 * draw(st.integers(1, 8))
    start, rest = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    return RotarySpec(start + rotary_dim + rest, rotary_dim, start=start)


@given(st.integers(1, 40))
def test_converting_back_restores_the_order(pairs):
    there, back = (order_of_rows(2 * pairs, to) for to in PAIRINGS)
    assert sorted(there) == sorted(back) == list(range(2 * pairs))
    assert [there[row] for row in back] == list(range(2 * pairs))


@pytest.mark.parametrize("place", PLACES)
@given(rope=ropes(), groups=st.integers(1, 3), keys=st.integers(1, 4))
def test_parts_that_rotate_are_apart_and_inside_the_tensor(place, rope, groups, keys):
    heads = Heads(4 * groups * keys, keys)
    rows = place(heads, rope)
    moved = [row for start in rows.starts for row in range(start, start + rope.rotary_dim)]
    assert len(set(moved)) == len(moved)
    assert 0 <= min(moved) <= max(moved) < rows.count


@given(
    rope=ropes(),
    to=st.sampled_from(PAIRINGS),
    groups=st.integers(1, 3),
    keys=st.integers(1, 3),
    positions=st.tuples(st.integers(0, 500), st.integers(0, 500)),
)
def test_scores_are_the_same_under_the_other_pairing(rope, to, groups, keys, positions):
    torch.manual_seed(0)
    before = "half" if to == "interleaved" else "interleaved"
    heads, width = Heads(groups * keys, keys), 3
    state = torch.randn(width, dtype=torch.float64)
    order = order_of_rows(rope.rotary_dim, to)
    scores = {}
    weights = {
        row_permutation.queries: torch.randn(
            heads.queries * rope.head_dim, width, dtype=torch.float64
        ),
        row_permutation.keys: torch.randn(heads.keys * rope.head_dim, width, dtype=torch.float64),
    }
    for pairing in (before, to):
        vectors = []
        for (place, weight), position in zip(weights.items(), positions, strict=True):
            if pairing == to:
                weight = weight.clone()
                for start in place(heads, rope).starts:
                    part = weight[start : start + rope.rotary_dim].numpy()
                    content = permuted(part.tobytes(), order)
                    part[:] = torch.frombuffer(bytearray(content), dtype=torch.float64).view(
                        part.shape
                    )
            vectors.append(rotated(weight @ state, position, rope, pairing))
        q, k = vectors
        scores[pairing] = torch.einsum("kgd,kd->kg", q.view(keys, groups, -1), k)
    torch.testing.assert_close(scores[to], scores[before], rtol=1e-9, atol=1e-9)


def rotated(x, position, rope, pairing):
    """Rotate heads, pair by pair."""
    x = x.view(-1, rope.head_dim).clone()
    pairs = rope.rotary_dim // 2
    for pair in range(pairs):
        first = rope.start + (pair if pairing == "half" else 2 * pair)
        second = first + (pairs if pairing == "half" else 1)
        angle = torch.tensor(position * 1e4 ** (-pair / pairs), dtype=torch.float64)
        a, b = x[:, first].clone(), x[:, second].clone()
        x[:, first] = a * angle.cos() - b * angle.sin()
        x[:, second] = b * angle.cos() + a * angle.sin()
    return x
