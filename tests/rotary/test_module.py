"""Properties of the rotation and of the module around it, and of moving what is rotated already.

These fail when a sign, a pairing, an axis or a position is wrong (a rotation that is none, or by
another angle than m·theta_i), when precision is lost on the way, and when a result comes to depend
on what was cached before or on chunking; and when cached keys, once moved, are not what they would
be had they been rotated at their new place (or by their new rope) to begin with: an amplitude
applied twice or not at all, a pair looked for where it is not, a rounding too many.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, axes, rerotate, scaling
from ropewalk.rotary.tables import MAX_CACHED_ROWS

PAIRINGS = ["half", "interleaved"]

positions_31 = st.integers(-(2**31), 2**31 - 1)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def specs(draw):
    pairs, unrotated = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    return RotarySpec(
        head_dim=2 * pairs + unrotated,
        rotary_dim=2 * pairs,
        theta=draw(st.floats(1.5, 1e7)),
        pairing=draw(st.sampled_from(PAIRINGS)),
    )


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def members(spec: RotarySpec, i: int) -> tuple[int, int]:
    """The two dimensions of pair i, as the definition of the pairing has them."""
    return (i, i + spec.rotary_dim // 2) if spec.pairing == "half" else (2 * i, 2 * i + 1)


def rotation_matrix(spec: RotarySpec, position: int) -> Tensor:
    """R of eq. 15, written down entry by entry: the unrotated dimensions keep the identity."""
    matrix = torch.eye(spec.head_dim, dtype=torch.float64)
    for i in range(spec.rotary_dim // 2):
        angle = position * spec.theta ** (-2 * i / spec.rotary_dim)
        first, second = members(spec, i)
        matrix[first, first], matrix[first, second] = math.cos(angle), -math.sin(angle)
        matrix[second, first], matrix[second, second] = math.sin(angle), math.cos(angle)
    return matrix


def at(position: int, times: int = 1) -> Tensor:
    return torch.tensor([position] * times)


# The rotation


@given(specs(), st.integers(-5_000, 5_000), seeds)
def test_equals_the_block_diagonal_matrix(spec, position, seed):
    x = random(2, 3, 1, spec.head_dim, seed=seed)
    fast = RotaryEmbedding(spec).rotate(x, at(position))
    torch.testing.assert_close(fast, x @ rotation_matrix(spec, position).T, rtol=0, atol=1e-6)


@given(specs(), st.data(), positions_31, positions_31, seeds)
def test_score_depends_on_the_distance_alone(spec, data, m, n, seed):
    shift = data.draw(st.integers(-(2**31) - min(m, n), 2**31 - 1 - max(m, n)), label="shift")
    q, k = random(2, 1, 1, 1, spec.head_dim, seed=seed)
    rope = RotaryEmbedding(spec)

    def score(m: int, n: int) -> float:
        return (rope.rotate(q, at(m)) * rope.rotate(k, at(n))).sum().item()

    assert abs(score(m, n) - score(m + shift, n + shift)) <= 4e-7 * (q.norm() * k.norm()).item()


@given(specs(), seeds)
def test_position_zero_is_the_identity(spec, seed):
    x = random(2, 3, 1, spec.head_dim, seed=seed)
    assert torch.equal(RotaryEmbedding(spec).rotate(x), x)
    assert torch.equal(RotaryEmbedding(spec).rotate(x, at(0)), x)


@given(st.integers(1, 8), positions_31, seeds)
def test_pairings_are_one_permutation_apart(pairs, position, seed):
    evens_then_odds = torch.arange(2 * pairs).reshape(pairs, 2).T.flatten()
    x = random(2, 3, 1, 2 * pairs, seed=seed)
    half = RotaryEmbedding(RotarySpec(2 * pairs, pairing="half"))
    interleaved = RotaryEmbedding(RotarySpec(2 * pairs, pairing="interleaved"))
    rotated = interleaved.rotate(x, at(position))
    assert torch.equal(
        half.rotate(x[..., evens_then_odds], at(position)), rotated[..., evens_then_odds]
    )


# Precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(specs(), positions_31, seeds)
def test_low_precision_is_float32_rounded_once(dtype, spec, position, seed):
    rope, x = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim, seed=seed, dtype=dtype)
    where = at(position, 4)
    rotated = rope.rotate(x, where)
    assert rotated.dtype == dtype
    assert torch.equal(rotated, rope.rotate(x.float(), where).to(dtype))


def test_tables_are_float32_under_any_default_dtype():
    rope, x = RotaryEmbedding(RotarySpec(16)), random(1, 2, 300, 16, dtype=torch.float32)
    expected = rope.rotate(x)
    torch.set_default_dtype(torch.float64)
    try:
        fresh = RotaryEmbedding(RotarySpec(16))
        rotated, (cos, _) = fresh.rotate(x), fresh.tables(torch.arange(3))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(rotated, expected)
    assert cos.dtype == torch.float32


# Shapes and positions


@given(specs(), seeds)
def test_a_cached_decode_equals_the_prefill(spec, seed):
    q, k = random(1, 4, 9, spec.head_dim, seed=seed), random(1, 2, 9, spec.head_dim, seed=seed + 1)
    whole = RotaryEmbedding(spec)(q, k)
    rope = RotaryEmbedding(spec)
    steps = [rope(q[:, :, t : t + 1], k[:, :, t : t + 1], offset=t) for t in range(9)]
    assert torch.equal(torch.cat([q for q, _ in steps], dim=-2), whole[0])
    assert torch.equal(torch.cat([k for _, k in steps], dim=-2), whole[1])


@pytest.mark.parametrize("offset", [0, MAX_CACHED_ROWS - 4, MAX_CACHED_ROWS, 10_000_000, -3])
def test_every_way_to_say_positions_is_exactly_the_same(offset):
    rope, x = RotaryEmbedding(RotarySpec(64)), random(3, 2, 8, 64, dtype=torch.float32)
    positions = torch.arange(offset, offset + 8)
    expected = rope.rotate(x, positions)
    assert torch.equal(rope.rotate(x, offset=offset), expected)
    assert torch.equal(rope.unrotate(x, offset=offset), rope.unrotate(x, positions))
    assert torch.equal(rope.rotate(x, positions.to(torch.int32)), expected)
    assert torch.equal(rope.rotate(x, positions.expand(3, 8)), expected)
    assert torch.equal(rope.rotate(x, positions[None]), expected)
    rope.rotate(random(1, 1, 1_000, 64))  # another call's rows change nothing
    assert torch.equal(rope.rotate(x, offset=offset), expected)


def test_cached_rows_stay_bounded():
    rope = RotaryEmbedding(RotarySpec(8))

    def cached_rows() -> list[int]:
        return [len(table) for tables in rope._tables._rows.values() for table in tables]

    rope.rotate(random(1, 1, 1, 8), offset=10_000_000)
    rope.rotate(random(1, 1, MAX_CACHED_ROWS + 1, 8))
    assert cached_rows() == []
    rope.rotate(random(1, 1, 5, 8))
    assert cached_rows() == [8, 8]
    rope.rotate(random(1, 1, 1, 8), offset=MAX_CACHED_ROWS - 1)
    assert cached_rows() == [MAX_CACHED_ROWS] * 2


def test_rows_are_cached_for_each_device():
    rope, x = RotaryEmbedding(RotarySpec(8)), random(1, 2, 4, 8)
    expected = rope.rotate(x)
    assert rope.rotate(x.to("meta")).is_meta
    assert torch.equal(rope.rotate(x), expected)


def test_grouped_queries_and_keys_of_another_length():
    rope = RotaryEmbedding(RotarySpec(16))
    q, k = random(2, 8, 5, 16), random(2, 2, 9, 16)
    q_positions, k_positions = torch.randint(0, 99, (2, 5)), torch.randint(0, 99, (9,))
    turned_q, turned_k = rope(q, k, positions=q_positions, key_positions=k_positions)
    assert torch.equal(turned_q, rope.rotate(q, q_positions))
    assert torch.equal(turned_k, rope.rotate(k, k_positions))
    # One query at the end of nine keys: the decode of a model that caches its keys unrotated.
    turned_q, turned_k = rope(q[:, :, :1], k, offset=8, key_positions=torch.arange(9))
    assert torch.equal(turned_q, rope.rotate(q[:, :, :1], at(8)))
    assert torch.equal(turned_k, rope.rotate(k))


# Moving what is rotated already: `unrotate`, `shift`, `rerotate`

L = 32
SHORT, LONG = (1.0, 1.1, 1.5, 2.0), (1.0, 2.0, 6.0, 16.0)
LONGROPE = scaling.LongRoPE(SHORT, LONG, original_length=L, factor=8.0, short_mscale=1.25)
NAMED = {
    "plain": RotarySpec(8),
    "interleaved, partial": RotarySpec(12, 8, pairing="interleaved"),
    "trailing": RotarySpec(12, start=4, pairing="interleaved"),
    "deepseek": RotarySpec(8, pairing="interleaved", write_pairing="half"),
    "the other way": RotarySpec(12, 8, pairing="half", write_pairing="interleaved", start=2),
    "backwards": RotarySpec(8, reverse=True),
    "loud": RotarySpec(12, 8, amplitude=1.7),
    "loud deepseek": RotarySpec(8, pairing="interleaved", write_pairing="half", amplitude=0.6),
    "linear": RotarySpec(8, scaling=scaling.Linear(4.0)),
    "yarn": RotarySpec(8, scaling=scaling.YaRN(16.0, 64)),
    "loud yarn": RotarySpec(10, 8, scaling=scaling.YaRN(16.0, 64), amplitude=1.3),
    "dynamic": RotarySpec(8, scaling=scaling.DynamicNTK(2.0, L)),
    "longrope": RotarySpec(8, scaling=LONGROPE),
    "proportional": RotarySpec(8, scaling=scaling.Proportional(0.5)),
    "m-rope": RotarySpec(8, axes=axes.sectioned((2, 1, 1)), amplitude=1.1),
    "blocks": RotarySpec(8, axes=axes.axial((2, 2)), blocks=(4, 4), amplitude=1.1),
}
SPECS = [pytest.param(spec, id=name) for name, spec in NAMED.items()]
positions_30 = st.integers(-(2**30), 2**30)
# Of a batch, since a length for all must reach as far as the positions.
lengths = st.integers(1, 4 * L).map(lambda length: torch.tensor([length]))
NINE, LONG = torch.tensor([9]), torch.tensor([4 * L])


def places(spec: RotarySpec, *values: int) -> Tensor:
    """Positions (S,), or (A, S) with other numbers on each axis."""
    where = torch.tensor(values)
    if spec.axis_count > 1:
        return torch.stack([where * (axis + 1) - axis for axis in range(spec.axis_count)])
    return where


@pytest.mark.parametrize("spec", SPECS)
@given(positions_30, positions_30, lengths)
def test_shifted_keys_are_as_if_rotated_there(spec, first, by, length):
    rope, k = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim)
    where = places(spec, first, 0, -7, 5)
    rotated = rope.rotate(k, where, length=length)
    expected = rope.rotate(k, where + by, length=length)
    moved = rope.shift(rotated, by, length=length)
    torch.testing.assert_close(moved, expected, rtol=0, atol=4e-6)
    torch.testing.assert_close(rope.shift(moved, -by, length=length), rotated, rtol=0, atol=4e-6)


@pytest.mark.parametrize("spec", SPECS)
def test_each_key_may_be_shifted_by_its_own_distance(spec):
    """As when a token is cut out of the middle of a cache: those behind it close up."""
    rope, k = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim)
    where, by = places(spec, 0, 1, 3, 4), places(spec, 0, 0, -1, -1)
    rotated = rope.rotate(k, where, length=NINE)
    expected = rope.rotate(k, where + by, length=NINE)
    torch.testing.assert_close(rope.shift(rotated, by, length=NINE), expected, rtol=0, atol=4e-6)
    rows = torch.stack([by, by], dim=-2)
    torch.testing.assert_close(rope.shift(rotated, rows, length=NINE), expected, rtol=0, atol=4e-6)
    heads_last = rope.shift(rotated.transpose(1, 2), by, length=NINE, seq_dim=-3)
    torch.testing.assert_close(heads_last.transpose(1, 2), expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("spec", SPECS)
@given(positions_30, lengths)
def test_unrotate_inverts_with_every_amplitude_and_pairing(spec, position, length):
    rope, x = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim)
    where = places(spec, position, 3, 2, 1)
    rotated = rope.rotate(x, where, length=length)
    back = rope.unrotate(rotated, where, length=length)
    torch.testing.assert_close(back, x, rtol=0, atol=4e-6)
    again = rope.rotate(rope.unrotate(x, where, length=length), where, length=length)
    torch.testing.assert_close(again, x, rtol=0, atol=4e-6)


@pytest.mark.parametrize("spec", SPECS)
def test_dimensions_that_do_not_rotate_are_not_touched_by_any_move(spec):
    rope, k = RotaryEmbedding(spec), random(1, 2, 4, spec.head_dim, dtype=torch.bfloat16)
    still = [d for d in range(spec.head_dim) if not spec.start <= d < spec.start + spec.rotary_dim]
    where = places(spec, 0, 1, 2, 3)
    moves = [
        rope.unrotate(k, where, length=NINE),
        rope.shift(k, 5, length=NINE),
        rerotate(k, where, spec, spec, old_length=NINE, new_length=LONG),
    ]
    for moved in moves:
        assert torch.equal(moved[..., still], k[..., still])


# From one rope to another


def test_rows_of_a_batch_may_cross_one_by_one():
    spec, k = NAMED["longrope"], random(3, 2, 5, 8)
    rope, where = RotaryEmbedding(spec), torch.arange(30, 35)
    old, new = torch.tensor([35, 35, L]), torch.tensor([36, 10, 36])
    rotated = rope.rotate(k, where, length=old)
    moved = rerotate(rotated, where, spec, spec, old_length=old, new_length=new)
    expected = rope.rotate(k, where, length=new)
    torch.testing.assert_close(moved, expected, rtol=0, atol=4e-6)
    torch.testing.assert_close(moved[0], rotated[0], rtol=0, atol=4e-6)


ALIKE = [spec for spec in NAMED.values() if (spec.head_dim, spec.axis_count) == (8, 1)]


@given(st.sampled_from(ALIKE), st.sampled_from(ALIKE), positions_30, lengths, lengths)
def test_keys_go_from_any_rope_to_any_other(old, new, position, old_length, new_length):
    """Between rules, amplitudes, directions and both orders of pairs, written and read."""
    k, where = random(2, 3, 2, 8), torch.tensor([position, 3])
    rotated = RotaryEmbedding(old).rotate(k, where, length=old_length)
    moved = rerotate(rotated, where, old, new, old_length=old_length, new_length=new_length)
    expected = RotaryEmbedding(new).rotate(k, where, length=new_length)
    torch.testing.assert_close(moved, expected, rtol=0, atol=6e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", SPECS)
def test_low_precision_keys_are_moved_in_float32_and_rounded_once(spec, dtype):
    rope, k = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim, dtype=dtype)
    where = places(spec, 2**30, 1, 2, 3)
    assert torch.equal(
        rope.shift(k, 77, length=NINE), rope.shift(k.float(), 77, length=NINE).to(dtype)
    )
    assert torch.equal(
        rope.unrotate(k, where, length=NINE), rope.unrotate(k.float(), where, length=NINE).to(dtype)
    )
    lengths = {"old_length": NINE, "new_length": LONG}
    moved = rerotate(k, where, spec, spec, **lengths)
    assert moved.dtype == dtype
    assert torch.equal(moved, rerotate(k.float(), where, spec, spec, **lengths).to(dtype))


@pytest.mark.parametrize("spec", SPECS)
def test_gradients_run_through_every_move(spec):
    rope, k = RotaryEmbedding(spec), random(1, 2, 3, spec.head_dim).requires_grad_()
    where = places(spec, 5, 1, 2)
    moves = [
        lambda k: rope.unrotate(k, where, length=NINE),
        lambda k: rope.shift(k, 5, length=NINE),
        lambda k: rerotate(k, where, spec, spec, old_length=NINE, new_length=LONG),
    ]
    for move in moves:
        assert torch.autograd.gradcheck(move, k, fast_mode=True)


def test_what_cannot_be_moved_is_an_error():
    rope, k, four = RotaryEmbedding(RotarySpec(8)), random(1, 2, 4, 8), torch.arange(4)
    spec, longrope = rope.spec, NAMED["longrope"]
    check_refused(
        ValueError,
        (lambda: rope.shift(k, four[:3]), "by must be (4,) or (1, 4) for k of shape (1, 2, 4, 8)"),
        (lambda: rope.shift(k[..., :6], 1), "k's last axis must be head_dim=8, got shape (1,"),
        (lambda: rerotate(k, four, spec, RotarySpec(8, 6)), "same dimensions as old: head_dim,"),
        (lambda: rerotate(k, four[:3], spec, spec), "positions must be (4,) or (1, 4)"),
        (lambda: rerotate(k, four, spec, longrope, old_length=3), "frequencies of LongRoPE"),
    )
    check_refused(
        TypeError,
        (lambda: rope.shift(k, 0.5), "by must be an integer tensor, got 0.5"),
        (lambda: rope.shift(k, torch.ones(4)), "by must have an integer dtype, got torch.float32"),
    )
