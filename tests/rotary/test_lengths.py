"""A length that serves less than it is given: the new tokens counted instead of all.

Fails when such a length passes in silence where positions are known, when an error comes where
frequencies are the same or positions are on a device, and when a length that serves is refused.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import RotaryEmbedding, RotarySpec, rerotate, scaling

L = 16
RULES = {
    "longrope": scaling.LongRoPE((1.0,) * 4, (4.0,) * 4, L, factor=4.0),
    "dynamic": scaling.DynamicNTK(2.0, L),
}
ROPES = [pytest.param(RotaryEmbedding(RotarySpec(8, scaling=r)), id=n) for n, r in RULES.items()]
CALLS = {
    "both": lambda rope, x, where, length: rope(x, x, length=length, **where),
    "rotate": lambda rope, x, where, length: rope.rotate(x, length=length, **where),
    "unrotate": lambda rope, x, where, length: rope.unrotate(x, length=length, **where),
    "keys": lambda rope, x, where, length: rope(
        x, x, torch.arange(x.shape[2]) * 0, torch.arange(x.shape[2]) + where["offset"],
        length=length,
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("rope", ROPES)
@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 80), st.booleans())
def test_a_length_that_is_too_small_is_an_error_where_it_matters(
    call, rope, offset, new, length, given_as_positions
):
    x, end = torch.randn(1, 1, new, 8), offset + new
    where = {"offset": offset}
    if given_as_positions and call != "keys":
        where = {"positions": torch.arange(offset, end)}
    # Up to L, and for LongRoPE beyond it, one length is as another.
    if length >= end or rope.spec.length_key(length) == rope.spec.length_key(end):
        CALLS[call](rope, x, where, length)
    else:
        message = rf"length must be at least {end}, to serve .* {end - 1}, got {length}; .*new"
        with pytest.raises(ValueError, match=message):
            CALLS[call](rope, x, where, length)


@pytest.mark.parametrize("rope", ROPES)
def test_rows_that_are_cached_do_not_hide_it(rope):
    x = torch.randn(1, 1, 1, 8)
    for length in (1, L):
        rope(*torch.randn(2, 1, 1, 9, 8), length=length + 8)  # rows are cached
    with pytest.raises(ValueError, match="length must be at least 21"):
        rope(x, x, offset=20, length=1)


@pytest.mark.parametrize("rope", ROPES)
def test_tables_and_moved_caches_are_checked_and_distances_are_not(rope):
    with pytest.raises(ValueError, match="length must be at least 100"):
        rope.tables(torch.arange(100), length=3)
    k, positions = torch.randn(1, 1, 100, 8), torch.arange(100)
    with pytest.raises(ValueError, match="length must be at least 100"):
        rerotate(k, positions, rope.spec, rope.spec, old_length=3, new_length=100)
    rope.shift(k, 100, length=3)


@pytest.mark.parametrize("rope", ROPES)
def test_nothing_is_said_where_positions_are_not_at_hand(rope):
    """On a device it would wait; rows of a batch may be padded; transforms hold no numbers."""
    x, far = torch.randn(2, 1, 40, 8), torch.arange(40)
    rope.rotate(x.to("meta"), far.to("meta"), length=torch.tensor([3, 40]))
    rope.tables(far.to("meta"), length=3)
    rope.rotate(x, far, length=torch.tensor([3, 40]))
    torch.vmap(lambda p: rope.tables(p, length=3))(far[None])
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        rope.rotate(x, length=0)
    empty = rope.rotate(x[:, :, :0], far[:0], length=1)
    assert empty.shape == (2, 1, 0, 8)
