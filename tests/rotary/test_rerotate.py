"""Moving what is rotated already: `unrotate`, `shift` and `rerotate`.

These fail when cached keys, once moved, are not what they would be had they been rotated at their
new place (or by their new rope) to begin with: an amplitude applied twice or not at all, a pair
looked for where it is not, a rounding too many.
"""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, axes, rerotate, scaling

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


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


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
def test_shift_leaves_the_amplitude_as_it_was(spec):
    """By 0 nothing changes; over and over, norms stay."""
    rope, k = RotaryEmbedding(spec), random(1, 2, 4, spec.head_dim)
    rotated = rope.rotate(k, length=NINE)
    torch.testing.assert_close(rope.shift(rotated, 0, length=NINE), rotated, rtol=0, atol=1e-6)
    moved = rotated
    for _ in range(20):
        moved = rope.shift(moved, 3, length=NINE)
    torch.testing.assert_close(moved.norm(dim=-1), rotated.norm(dim=-1), rtol=1e-5, atol=0)


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


@given(st.lists(st.integers(0, 2**30), min_size=4, max_size=4), st.booleans())
def test_a_cache_survives_longropes_crossing(where, back):
    spec, k = NAMED["longrope"], random(2, 3, 4, 8)
    rope, positions = RotaryEmbedding(spec), torch.tensor(where)
    sides = torch.tensor([[L], [L + 1]])
    old, new = sides.flip(0) if back else sides
    rotated = rope.rotate(k, positions, length=old)
    moved = rerotate(rotated, positions, spec, spec, old_length=old, new_length=new)
    expected = rope.rotate(k, positions, length=new)
    torch.testing.assert_close(moved, expected, rtol=0, atol=4e-6)
    assert (rotated - expected).abs().max() > 1e-2  # there was something to do: two amplitudes


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
        assert torch.autograd.gradcheck(move, k)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda rope, k: rope.shift(k, 0.5),
            TypeError,
            "by must be an integer tensor, got 0.5",
        ),
        (
            lambda rope, k: rope.shift(k, torch.ones(4)),
            TypeError,
            "by must have an integer dtype, got torch.float32",
        ),
        (
            lambda rope, k: rope.shift(k, torch.arange(3)),
            ValueError,
            "by must be (4,) or (1, 4) for k of shape (1, 2, 4, 8) with seq_dim=-2, got shape (3,)",
        ),
        (
            lambda rope, k: rope.shift(k[..., :6], 1),
            ValueError,
            "k's last axis must be head_dim=8, got shape (1, 2, 4, 6)",
        ),
        (
            lambda rope, k: rerotate(k, torch.arange(4), rope.spec, RotarySpec(8, 6)),
            ValueError,
            "new must rotate the same dimensions as old: head_dim, rotary_dim and start of "
            "(8, 8, 0)",
        ),
        (
            lambda rope, k: rerotate(k, torch.arange(3), rope.spec, rope.spec),
            ValueError,
            "positions must be (4,) or (1, 4)",
        ),
        (
            lambda rope, k: rerotate(
                k, torch.arange(4), rope.spec, NAMED["longrope"], old_length=3
            ),
            ValueError,
            "length must be given, got None: frequencies of LongRoPE",
        ),
    ],
)
def test_what_cannot_be_moved_is_an_error(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(RotaryEmbedding(RotarySpec(8)), random(1, 2, 4, 8))
