"""Pairs of dimensions: their norms, and rotation without some of them.

These fail if pairs of the other pairing are measured, if p-RoPE stops other pairs than the rule
`Proportional` does, or if a pair that does not rotate loses its amplitude.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ropewalk as rw
from ropewalk import scaling
from ropewalk.tools.usage.head_usage import Rope, pair_squares, without_rotation


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@given(head_dim=st.sampled_from([4, 8, 16]), start=st.sampled_from([0, 2]), seed=st.integers(0, 9))
def test_rotation_keeps_the_norm_of_every_pair(pairing, head_dim, start, seed):
    """Fails if a pair is made of dimensions that do not turn together."""
    spec = rw.RotarySpec(
        head_dim=head_dim, rotary_dim=head_dim - 2, pairing=pairing, theta=100.0, start=start
    )
    torch.manual_seed(seed)
    x = torch.randn(2, 3, 5, head_dim)
    turned = rw.RotaryEmbedding(spec).rotate(x, torch.arange(5))
    torch.testing.assert_close(pair_squares(turned, spec), pair_squares(x, spec), rtol=1e-5, atol=0)


def test_norms_are_those_of_the_pairs_in_order():
    """Fails if the fastest pair does not come first, or heads or tokens are mixed up."""
    spec = rw.RotarySpec(head_dim=4, pairing="half")
    x = torch.zeros(1, 2, 2, 4)
    x[0, 1, 0] = torch.tensor([3.0, 0.0, 4.0, 0.0])  # pair 0, at one token of two
    expected = torch.zeros(1, 2, 2, 2, dtype=torch.float64)
    expected[0, 1, 0, 0] = 25.0
    torch.testing.assert_close(pair_squares(x, spec), expected)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.75, 0.9, 1.0])
@pytest.mark.parametrize(
    "fields",
    [
        {"head_dim": 16},
        {"head_dim": 16, "pairing": "interleaved"},
        {"head_dim": 16, "pairing": "interleaved", "write_pairing": "half"},
        {"head_dim": 20, "rotary_dim": 16, "start": 2, "pairing": "interleaved"},
        {"head_dim": 16, "amplitude": 1.3, "reverse": True},
    ],
)
def test_stopped_pairs_are_those_of_the_rule(fields, fraction):
    """Fails if other pairs stop than in the published rule, or if other dimensions change."""
    torch.manual_seed(0)
    plain = rw.RotarySpec(**fields)
    rule = rw.RotarySpec(**fields, scaling=scaling.Proportional(fraction))
    x, at = torch.randn(2, 3, 5, plain.head_dim), torch.arange(5) * 7
    rope = Rope(plain)
    rotated = rw.RotaryEmbedding(plain).rotate(x, at)
    found = without_rotation(x, rotated, rope, rope.stopped(fraction))
    torch.testing.assert_close(found, rw.RotaryEmbedding(rule).rotate(x, at))
    assert rope.rotating(fraction) == int((rule.inverse_frequencies() != 0).sum())


def test_the_slowest_pairs_stop_whatever_their_order():
    """Fails if the order of the pairs is taken for that of their frequencies (M-RoPE, learned)."""
    spec = rw.RotarySpec(head_dim=8, axes=((0, 0.5), (0, 0.0), (0, 0.75), (0, 0.25)))
    rope = Rope(spec)
    assert rope.order.tolist() == [1, 3, 0, 2]
    assert rope.stopped(0.5).tolist() == [True, False, True, False]
    assert rope.wavelengths.tolist() == sorted(spec.wavelengths().tolist())


def test_pairs_that_stand_already_are_not_counted():
    spec = rw.RotarySpec(head_dim=16, scaling=scaling.Proportional(0.5))
    assert [Rope(spec).rotating(p) for p in (1, 0.75, 0.25, 0)] == [4, 4, 2, 0]


def test_blocks_are_paired_within():
    """Fails if pairs are made across blocks: the norm of a pair then changes as it rotates."""
    spec = rw.RotarySpec(head_dim=12, blocks=(8, 4), axes=((0, 0.0),) * 4 + ((0, 0.25),) * 2)
    x = torch.randn(1, 2, 6, 12)
    rotated = rw.RotaryEmbedding(spec).rotate(x, torch.arange(6))
    turned, before = pair_squares(rotated, spec), pair_squares(x, spec)
    torch.testing.assert_close(turned, before, rtol=1e-5, atol=0)
    still = without_rotation(x, rotated, Rope(spec), torch.ones(6, dtype=torch.bool))
    torch.testing.assert_close(still, x)


def test_vectors_of_the_rotary_part_alone_are_read_too():
    spec = rw.RotarySpec(head_dim=12, rotary_dim=8, start=4)
    x = torch.randn(1, 2, 6, 12)
    torch.testing.assert_close(pair_squares(x[..., 4:], spec), pair_squares(x, spec))
    with pytest.raises(ValueError, match="heads of 12 dimensions, or the 8 that rotate, got 10"):
        pair_squares(x[..., 2:], spec)
