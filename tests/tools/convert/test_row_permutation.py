"""The new order of rows: a bijection with an inverse, after which scores are the same.

These fail if a row is lost or doubled, if converting back does not restore the order, or if queries
and keys of the new order, rotated by the other pairing, give other scores.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import RotaryEmbedding, RotarySpec
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
    heads, width = Heads(groups * keys, keys), 3
    state = torch.randn(width, dtype=torch.float64)
    order = order_of_rows(rope.rotary_dim, to)
    scores = {}
    places = {row_permutation.queries: heads.queries, row_permutation.keys: heads.keys}
    weights = {place: torch.randn(n * rope.head_dim, width).double() for place, n in places.items()}
    for pairing in sorted(PAIRINGS, key=lambda pairing: pairing == to):
        spec = replace(rope, pairing=pairing, write_pairing=pairing)
        vectors = []
        for (place, weight), position in zip(weights.items(), positions, strict=True):
            for start in place(heads, rope).starts if pairing == to else ():
                part = weight[start : start + rope.rotary_dim].numpy()
                content = permuted(part.tobytes(), order)
                part[:] = np.frombuffer(content).reshape(part.shape)
            x = (weight @ state).view(1, -1, 1, rope.head_dim)
            vectors.append(RotaryEmbedding(spec).rotate(x, torch.tensor([position])))
        q, k = vectors
        scores[pairing] = torch.einsum("kgd,kd->kg", q.view(keys, groups, -1), k.view(keys, -1))
    first, second = scores.values()
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)
