"""Properties of the rotation, of its gradient and of the module around it.

These fail when a sign, a pairing, an axis or a position is wrong (a rotation that is none, or by
another angle than m·theta_i), when precision is lost on the way, and when a result comes to depend
on what was cached before, on chunking, or on what was done to the module.
"""

import copy
import io
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, rotate
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


@given(specs(), positions_31, seeds)
def test_keeps_norms(spec, position, seed):
    x = random(1, 4, 1, spec.head_dim, seed=seed)
    rotated = RotaryEmbedding(spec).rotate(x, at(position))
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1), rtol=1e-7, atol=0)


@given(specs(), seeds)
def test_position_zero_is_the_identity(spec, seed):
    x = random(2, 3, 1, spec.head_dim, seed=seed)
    assert torch.equal(RotaryEmbedding(spec).rotate(x), x)
    assert torch.equal(RotaryEmbedding(spec).rotate(x, at(0)), x)


@given(specs(), st.data(), st.integers(-1_000, 1_000))
def test_a_pair_rotates_by_position_times_frequency(spec, data, position):
    i = data.draw(st.integers(0, spec.rotary_dim // 2 - 1), label="pair")
    first, second = members(spec, i)
    x = torch.zeros(1, 1, 1, spec.head_dim, dtype=torch.float64)
    x[..., first] = 1
    y = RotaryEmbedding(spec).rotate(x, at(position)).flatten()
    expected = position * spec.inverse_frequencies()[i].item()
    turned_by = math.atan2(y[second], y[first])
    assert abs(math.remainder(turned_by - expected, 2 * math.pi)) < 1e-6


@given(specs(), positions_31, seeds)
def test_dimensions_that_do_not_rotate_pass_through(spec, position, seed):
    x = random(2, 3, 4, spec.head_dim, seed=seed, dtype=torch.bfloat16)
    rotated = RotaryEmbedding(spec).rotate(x, at(position, 4))
    assert torch.equal(rotated[..., spec.rotary_dim :], x[..., spec.rotary_dim :])


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_start_says_where_the_rotated_dimensions_begin(pairing):
    x = random(2, 3, 5, 12)
    cos, sin = RotaryEmbedding(RotarySpec(6, pairing=pairing)).tables(torch.arange(5))
    rotated = rotate(x, cos, sin, pairing=pairing, start=4)
    assert torch.equal(rotated[..., 4:10], rotate(x[..., 4:10], cos, sin, pairing=pairing))
    assert torch.equal(rotated[..., :4], x[..., :4])
    assert torch.equal(rotated[..., 10:], x[..., 10:])


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


# Inverse, adjoint, gradient


@given(specs(), positions_31, seeds)
def test_unrotate_inverts(spec, position, seed):
    rope, x = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim, seed=seed)
    where = at(position, 4)
    torch.testing.assert_close(rope.unrotate(rope.rotate(x, where), where), x, rtol=0, atol=1e-6)


@given(specs(), positions_31, st.floats(0.5, 2), seeds)
def test_adjoint_is_the_transpose_and_the_gradient(spec, position, amplitude, seed):
    x, y = random(2, 2, 3, 4, spec.head_dim, seed=seed)
    cos, sin = (amplitude * t for t in RotaryEmbedding(spec).tables(at(position, 4)))
    x.requires_grad_()
    rotated = rotate(x, cos, sin, pairing=spec.pairing)
    transposed = rotate(y, cos, sin, pairing=spec.pairing, adjoint=True)
    torch.testing.assert_close((rotated * y).sum(), (x * transposed).sum(), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad(rotated, x, y)
    torch.testing.assert_close(gradient, transposed, rtol=0, atol=1e-14)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_gradients_of_the_pair_reach_queries_and_keys(pairing):
    rope = RotaryEmbedding(RotarySpec(8, rotary_dim=6, pairing=pairing))
    q, k = random(2, 4, 3, 8).requires_grad_(), random(2, 2, 3, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: rope(q, k, offset=5), (q, k))


# Precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(specs(), positions_31, seeds)
def test_low_precision_is_float32_rounded_once(dtype, spec, position, seed):
    rope, x = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim, seed=seed, dtype=dtype)
    where = at(position, 4)
    rotated = rope.rotate(x, where)
    assert rotated.dtype == dtype
    assert torch.equal(rotated, rope.rotate(x.float(), where).to(dtype))


def test_tables_are_float32_under_any_default_dtype_and_autocast():
    rope, x = RotaryEmbedding(RotarySpec(16)), random(1, 2, 300, 16, dtype=torch.float32)
    expected = rope.rotate(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rotated = copy.deepcopy(rope).rotate(x)
    assert torch.equal(rotated, expected)
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


@given(specs(), seeds)
def test_each_of_the_batch_has_its_own_positions(spec, seed):
    rope, x = RotaryEmbedding(spec), random(3, 2, 4, spec.head_dim, seed=seed)
    positions = torch.randint(
        -(2**31), 2**31, (3, 4), generator=torch.Generator().manual_seed(seed)
    )
    rotated = rope.rotate(x, positions)
    for b in range(3):
        assert torch.equal(rotated[b], rope.rotate(x[b], positions[b]))
        for s in range(4):
            alone = rope.rotate(x[b, :, s : s + 1], positions[b, s : s + 1])
            assert torch.equal(rotated[b, :, s : s + 1], alone)


@given(specs(), st.booleans(), seeds)
def test_seq_dim_is_only_where_the_positions_run(spec, batched, seed):
    rope, x = RotaryEmbedding(spec), random(2, 3, 4, spec.head_dim, seed=seed)
    positions = torch.randint(0, 10_000, (2, 4) if batched else (4,))
    heads_last = rope.rotate(x.transpose(1, 2), positions, seq_dim=-3)
    assert torch.equal(heads_last.transpose(1, 2), rope.rotate(x, positions))


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_strides_do_not_matter(pairing):
    rope = RotaryEmbedding(RotarySpec(8, rotary_dim=6, pairing=pairing))
    strided = [
        random(2, 5, 3, 8).transpose(1, 2),
        random(2, 3, 5, 16)[..., ::2],
        random(1, 1, 5, 8).expand(2, 3, 5, 8),
        random(8, 5, 3, 2).permute(3, 2, 1, 0),
    ]
    for x in strided:
        assert torch.equal(rope.rotate(x), rope.rotate(x.contiguous()))


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("rotary_dim", [6, 8])
def test_out_is_written_in_place_too(pairing, rotary_dim):
    x = random(2, 3, 5, 8)
    cos, sin = RotaryEmbedding(RotarySpec(rotary_dim)).tables(torch.arange(5))
    expected, out = rotate(x, cos, sin, pairing=pairing), torch.empty_like(x)
    assert rotate(x, cos, sin, pairing=pairing, out=out) is out
    assert torch.equal(out, expected)
    assert rotate(x, cos, sin, pairing=pairing, out=x) is x
    assert torch.equal(x, expected)


# The module survives what is done to modules


def saved_and_loaded(rope: RotaryEmbedding) -> RotaryEmbedding:
    return pickle.loads(pickle.dumps(rope))


def through_meta(rope: RotaryEmbedding) -> RotaryEmbedding:
    with torch.device("meta"):
        rope = RotaryEmbedding(rope.spec)
        assert rope.rotate(torch.empty(1, 2, 7, 8)).is_meta
    return rope.to_empty(device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.Module.half,
        torch.nn.Module.bfloat16,
        torch.nn.Module.double,
        copy.deepcopy,
        saved_and_loaded,
        through_meta,
    ],
)
def test_nothing_done_to_the_module_changes_its_results(change):
    rope, x = RotaryEmbedding(RotarySpec(8)), random(1, 2, 300, 8)
    expected = rope.rotate(x)
    changed = change(rope)
    assert torch.equal(changed.rotate(x), expected)
    assert torch.equal(changed.rotate(x, torch.arange(300)), expected)


def test_the_module_holds_no_state():
    rope = RotaryEmbedding(RotarySpec(64))
    rope.rotate(random(1, 1, MAX_CACHED_ROWS, 64))
    assert not [*rope.state_dict(), *rope.parameters(), *rope.buffers()]
    saved = io.BytesIO()
    torch.save(rope, saved)
    assert saved.tell() < 10_000  # the rows that it has cached would be 4 MiB


def test_rows_cached_in_inference_mode_serve_training():
    rope, x = RotaryEmbedding(RotarySpec(8)), random(1, 2, 4, 8, dtype=torch.float32)
    with torch.inference_mode():
        rope.rotate(x)
    rope.rotate(x.requires_grad_()).sum().backward()
    assert x.grad is not None
