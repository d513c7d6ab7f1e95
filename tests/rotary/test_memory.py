"""Tensors whose memory is not what it seems: overlapping rows, none at all, tables under `out`.

Fails when one of them is refused with an error about tables, rotated wrongly in silence, or
crashes the process; and when queries and keys of two batches are rotated together.
"""

from __future__ import annotations

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, rotate

PAIRINGS = ["half", "interleaved"]


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_overlapping_rows_are_rotated_as_their_copies(pairing, dtype):
    x, cos, sin = torch.randn(20, dtype=dtype).unfold(0, 16, 1), *torch.randn(2, 5, 8)
    rows = torch.randn(12).unfold(0, 8, 1)
    for c, s in ((cos, sin), (rows, sin), (rows, rows)):
        expected = rotate(x.clone(), c.clone(), s.clone(), pairing=pairing)
        assert torch.equal(rotate(x, c, s, pairing=pairing), expected)
    rope = RotaryEmbedding(RotarySpec(16))
    q = torch.randn(1, 1, 20).unfold(2, 16, 1)
    assert torch.equal(rope(q, q)[0], rope.rotate(q.clone()))


@pytest.mark.parametrize(
    ("x", "cos", "sin"),
    [
        ((0, 16), torch.ones(4, 16)[:0, ::2], torch.ones(0, 8)),
        ((0, 16), torch.ones(8, 0).T, torch.ones(4, 8)[:0]),
        ((2, 3, 0, 16), torch.ones(2, 4, 16)[:, :0, ::2], torch.ones(2, 0, 8)),
        ((0, 3, 5, 16), torch.ones(0, 5, 16)[..., ::2], torch.ones(0, 5, 8)),
        ((0, 3, 5, 16), torch.ones(5, 16)[..., ::2], torch.ones(5, 8)),
    ],
)
def test_where_there_are_no_positions_any_strides_will_do(x, cos, sin):
    assert rotate(torch.randn(x), cos, sin, pairing="half").shape == x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_torch_knows_to_be_zeros_is_rotated_as_zeros(dtype):
    x, cos, sin = torch.randn(1, 2, 5, 16, dtype=dtype), *torch.randn(2, 5, 8)
    none, table = (
        torch._efficientzerotensor(x.shape, dtype=dtype),
        torch._efficientzerotensor((5, 8)),
    )
    zeros, plain = torch.zeros(x.shape, dtype=dtype), torch.zeros(5, 8)

    def same(given, meant):
        found, expected = rotate(*given, pairing="half"), rotate(*meant, pairing="half")
        assert torch.equal(found, expected)

    same((none, cos, sin), (zeros, cos, sin))
    same((x, table, sin), (x, plain, sin))
    same((x, cos, table), (x, cos, plain))
    rope = RotaryEmbedding(RotarySpec(16))
    for _ in range(2):  # the second time by rows that are cached
        q, k = rope(none, x)
        assert torch.equal(q, zeros)
        assert torch.equal(k, rope.rotate(x))
    for y in (none, x):
        with pytest.raises(ValueError, match="out must have memory to write to"):
            rotate(y, cos, sin, pairing="half", out=none)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_may_lie_in_what_is_written(pairing, dtype):
    big = torch.randn(5, 16, dtype=dtype)
    expected = rotate(big, big[:, :8].clone(), big[:, 8:].clone(), pairing=pairing)
    assert rotate(big, big[:, :8], big[:, 8:], pairing=pairing, out=big) is big
    assert torch.equal(big, expected)
    x, held = torch.randn(5, 16, dtype=dtype), torch.randn(7, 16, dtype=dtype)
    expected = rotate(x, held[:5, :8].clone(), held[2:, 8:].clone(), pairing=pairing)
    rotate(x, held[:5, :8], held[2:, 8:], pairing=pairing, out=held[1:6])
    assert torch.equal(held[1:6], expected)


@pytest.mark.parametrize("seq_dim", [-2, -3])
def test_queries_and_keys_are_of_one_batch(seq_dim):
    rope = RotaryEmbedding(RotarySpec(8))
    q, k = torch.randn(2, 5, 5, 8), torch.randn(3, 5, 5, 8)
    for _ in range(2):
        for given in ({}, {"positions": torch.arange(5)}, {"key_positions": torch.arange(5)}):
            with pytest.raises(
                ValueError, match="k must have q's batch size, or one of both 1, got 3"
            ):
                rope(q, k, seq_dim=seq_dim, **given)
        rope(q, k[:1], seq_dim=seq_dim)
        rope(q, k[:2], seq_dim=seq_dim)
    rope(q[0, :4], k[0, :2]) if seq_dim == -2 else rope(q[0], k[0], seq_dim=-3)
