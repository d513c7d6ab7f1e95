"""Rules that depend on the length, and a length that serves less than it is given.

These fail when a result comes to depend on chunks, on batch neighbors or on what was asked before;
when a rule that needs the length does without; when a length that counts the new tokens, not all,
passes in silence where positions are known; when an error comes where frequencies are the same or
positions are on a device; and when a length that serves is refused.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import check_refused

from ropewalk import RotaryEmbedding, RotarySpec, rerotate, scaling

L = 64
SHORT = (1.0, 1.05, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
LONG = (1.0, 1.5, 2.75, 5.0, 9.0, 15.0, 24.0, 36.0)
DYNAMIC = scaling.DynamicNTK(factor=2.0, original_length=L)
LONGROPE = scaling.LongRoPE(SHORT, LONG, original_length=L, factor=8.0)
DEPENDING = [DYNAMIC, LONGROPE]
lengths = st.integers(1, 4 * L)


def name(rule: scaling.Scaling) -> str:
    return type(rule).__name__


def ropes(rule: scaling.Scaling) -> RotaryEmbedding:
    return RotaryEmbedding(RotarySpec(16, scaling=rule))


@pytest.mark.parametrize("rule", DEPENDING, ids=name)
@given(st.integers(1, 40), st.integers(1, 40), lengths)
def test_a_prefill_in_chunks_and_a_cached_decode_are_the_prefill(rule, first, second, length):
    rope, x, length = ropes(rule), torch.randn(1, 2, 80 + 1, 16), length + 80
    whole = ropes(rule).rotate(x, length=length)
    cuts = [0, first, first + second, 81]
    chunks = [rope.rotate(x[:, :, a:b], offset=a, length=length) for a, b in pairwise(cuts)]
    assert torch.equal(torch.cat(chunks, dim=-2), whole)
    step = rope.rotate(x[:, :, first : first + 1], torch.tensor([first]), length=length)
    assert torch.equal(step, whole[:, :, first : first + 1])


@pytest.mark.parametrize("rule", DEPENDING, ids=name)
@pytest.mark.parametrize("given_as", ["nothing", "offset", "positions", "rows of positions"])
@settings(max_examples=12)  # a length is on one of two sides of L
@given(st.lists(lengths, min_size=3, max_size=3))
def test_each_of_a_batch_has_its_own_length_and_is_as_it_would_be_alone(rule, given_as, each):
    rope, x = ropes(rule), torch.randn(3, 2, 5, 16)
    where = {
        "nothing": {},
        "offset": {"offset": 7},
        "positions": {"positions": torch.tensor([5, 0, 2, 9, 10_000_000])},
        "rows of positions": {"positions": torch.arange(15).reshape(3, 5)},
    }[given_as]
    rotated = rope.rotate(x, **where, length=torch.tensor(each))
    back = rope.unrotate(rotated, **where, length=torch.tensor(each))
    moved = rope.shift(rotated, 3, length=torch.tensor(each))
    torch.testing.assert_close(back, x, rtol=0, atol=2e-6)
    for b, length in enumerate(each):
        alone = dict(where)
        if given_as == "rows of positions":
            alone["positions"] = where["positions"][b]
        row = ropes(rule).rotate(x[b], **alone, length=torch.tensor([length]))
        assert torch.equal(rotated[b], row)
        torch.testing.assert_close(moved[b], rope.shift(row, 3, length=length), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", DEPENDING, ids=name)
@given(st.lists(st.tuples(lengths, st.integers(1, 99)), min_size=1, max_size=8))
def test_nothing_depends_on_what_was_asked_before(rule, calls):
    used, x = ropes(rule), torch.randn(1, 1, 99, 16)
    for length, count in calls:
        length = max(length, count)
        fresh = ropes(rule).rotate(x[:, :, :count], length=length)
        assert torch.equal(used.rotate(x[:, :, :count], length=length), fresh)


def test_rows_are_kept_for_the_two_latest_sets_of_frequencies():
    """Serving one token after the other at a dynamic length must not pile up tables."""
    rope, x = ropes(DYNAMIC), torch.randn(1, 1, 9, 16)
    for length in [*range(L, L + 20), 9]:
        rope.rotate(x, length=length)
        assert len(rope._tables._rows) <= 2
    both = ropes(LONGROPE)
    for length in (9, L, L + 1, 4 * L, 10):
        both.rotate(x, length=length)
    assert len(both._tables._rows) == 2


@pytest.mark.parametrize("rule", DEPENDING, ids=name)
def test_a_missing_length_is_an_error(rule):
    rope, x = ropes(rule), torch.randn(1, 1, 5, 16)
    calls = [
        lambda: rope(x, x),
        lambda: rope.rotate(x, offset=3),
        lambda: rope.rotate(x, torch.arange(5)),
        lambda: rope.unrotate(x),
        lambda: rope.shift(x, 3),
        lambda: rope.tables(torch.arange(5)),
        rope.spec.inverse_frequencies,
        rope.spec.wavelengths,
        rope.spec.amplitude_at,
        rope.spec.fixed_point_frequencies,
    ]
    message = f"length must be given, got None: frequencies of {name(rule)} depend on the length of"
    check_refused(ValueError, *[(call, message) for call in calls])


@pytest.mark.parametrize("positions", [None, torch.arange(5).expand(2, 5)])
def test_a_wrong_length_is_an_error(positions):
    def call(length):
        return lambda: ropes(LONGROPE).rotate(torch.randn(2, 1, 5, 16), positions, length=length)

    integers = "length must be an int, or integers of shape (B,) for B rows, got torch."
    check_refused(
        ValueError,
        (call(0), "length must be at least 1, got 0"),
        (call(torch.tensor(5)), f"{integers}int64"),
        (call(torch.tensor([5.0, 5.0])), f"{integers}float32 of shape (2,)"),
        (call(torch.tensor([True, True])), f"{integers}bool of shape (2,)"),
        (call(torch.tensor([5, 0])), "length must be at least 1, got 0"),
        (call(torch.tensor([5, 5, 5])), "got shape (3,); x has shape (2, 1, 5, 16)"),
    )
    check_refused(
        TypeError,
        (call(5.0), "length must be an int, got 5.0 of type float"),
        (call(True), "length must be an int, got True of type bool"),
    )


def test_a_rule_without_need_of_the_length_takes_it_and_does_not_heed_it():
    rope, x = ropes(scaling.Linear(2.0)), torch.randn(2, 1, 5, 16)
    for length in (5, torch.tensor([3, 4])):
        assert torch.equal(rope.rotate(x, length=length), rope.rotate(x))
    with pytest.raises(TypeError, match="length must be an int, got 'long' of type str"):
        rope.rotate(x, length="long")


def test_an_empty_batch_with_lengths_stays_empty():
    none = torch.empty(0, dtype=torch.int64)
    assert ropes(LONGROPE).rotate(torch.empty(0, 2, 5, 16), length=none).shape == (0, 2, 5, 16)


@pytest.mark.parametrize("rule", DEPENDING, ids=name)
def test_lengths_need_not_lie_where_the_keys_are(rule):
    """On another device (here meta) nothing meets a tensor that stayed behind."""
    rope, k = ropes(rule), torch.empty(2, 1, 5, 16, device="meta")
    each = torch.tensor([3, 300])
    for rotated in (rope.rotate(k, length=each), rope.unrotate(k, length=each)):
        assert rotated.is_meta
    assert rope.shift(k, 4, length=each).is_meta


# A length that serves less than it is given: the new tokens counted instead of all

FEW = 16
RULES = {
    "longrope": scaling.LongRoPE((1.0,) * 4, (4.0,) * 4, FEW, factor=4.0),
    "dynamic": scaling.DynamicNTK(2.0, FEW),
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
    # Up to FEW, and for LongRoPE beyond it, one length is as another.
    if length >= end or rope.spec.length_key(length) == rope.spec.length_key(end):
        CALLS[call](rope, x, where, length)
    else:
        message = rf"length must be at least {end}, to serve .* {end - 1}, got {length}; .*new"
        with pytest.raises(ValueError, match=message):
            CALLS[call](rope, x, where, length)


@pytest.mark.parametrize("rope", ROPES)
def test_rows_that_are_cached_do_not_hide_it(rope):
    x = torch.randn(1, 1, 1, 8)
    for length in (1, FEW):
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
