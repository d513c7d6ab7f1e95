"""Specs of every shape: axes, blocks, continuous positions, two pairings, direction, start.

These fail when a pair follows the wrong axis, rotates by the wrong frequency or in the wrong
direction, or is read from or written to the wrong dimensions.
"""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, axes, rotate
from ropewalk.rotary.axes import as_code, check_axes

PAIRINGS = ["half", "interleaved"]
pairings = st.sampled_from(PAIRINGS)


# The rotation, entry by entry


@st.composite
def any_specs(draw):
    count = draw(st.integers(1, 3))
    pairs = draw(st.integers(count, 6))
    write_pairing, blocks = draw(pairings), None
    pairing = draw(pairings)
    if draw(st.booleans()):
        cuts = sorted(draw(st.sets(st.integers(1, pairs - 1), max_size=2))) if pairs > 1 else []
        ends = [0, *cuts, pairs]
        blocks = tuple(2 * (b - a) for a, b in pairwise(ends))
        write_pairing = pairing
    owners = draw(st.permutations([*range(count), *([0] * (pairs - count))]))
    exponents = [draw(st.fractions(0, 1, max_denominator=64)) for _ in range(pairs)]
    start, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return RotarySpec(
        head_dim=start + 2 * pairs + after,
        theta=draw(st.floats(1.5, 1e6)),
        pairing=pairing,
        write_pairing=write_pairing,
        start=start,
        amplitude=draw(st.floats(0.25, 4)),
        reverse=draw(st.booleans()),
        axes=tuple(zip(owners, exponents, strict=True)),
        blocks=blocks,
    )


def members(spec: RotarySpec, pair: int, pairing: str) -> tuple[int, int]:
    """The two dimensions of a pair, within its block, as the definition of the pairing has them."""
    start = spec.start
    for size in spec.blocks or (spec.rotary_dim,):
        if pair < size // 2:
            break
        start, pair = start + size, pair - size // 2
    if pairing == "half":
        return start + pair, start + pair + size // 2
    return start + 2 * pair, start + 2 * pair + 1


def matrix(spec: RotarySpec, position: list[int]) -> Tensor:
    """What one position does to a head."""
    found = torch.eye(spec.head_dim, dtype=torch.float64)
    found[range(spec.start, spec.start + spec.rotary_dim)] = 0
    for pair, (axis, exponent) in enumerate(spec.axes):
        angle = position[axis] * spec.theta ** -float(exponent) * (-1 if spec.reverse else 1)
        cos, sin = spec.amplitude * math.cos(angle), spec.amplitude * math.sin(angle)
        (x1, x2), (y1, y2) = (
            members(spec, pair, spec.pairing),
            members(spec, pair, spec.write_pairing),
        )
        found[y1, x1], found[y1, x2], found[y2, x1], found[y2, x2] = cos, -sin, sin, cos
    return found


@given(any_specs(), st.lists(st.integers(-3_000, 3_000), min_size=3, max_size=3))
def test_every_spec_is_its_matrix_and_the_adjoint_is_the_transpose(spec, position):
    x = torch.randn(2, 3, 1, spec.head_dim, dtype=torch.float64)
    where = torch.tensor(position[: spec.axis_count])[:, None]
    where = where if spec.axis_count > 1 else where[0]
    rope, expected = RotaryEmbedding(spec), matrix(spec, position)
    torch.testing.assert_close(rope.rotate(x, where), x @ expected.T, rtol=0, atol=4e-6)

    x.requires_grad_()
    y = torch.randn_like(x)
    (gradient,) = torch.autograd.grad(rope.rotate(x, where), x, y)
    torch.testing.assert_close(gradient, y @ expected, rtol=0, atol=4e-6)
    if spec.blocks is None:
        pairs = {"pairing": spec.pairing, "write_pairing": spec.write_pairing, "start": spec.start}
        transposed = rotate(y, *rope.tables(where), **pairs, adjoint=True)
        torch.testing.assert_close(gradient, transposed, rtol=0, atol=1e-12)


@given(any_specs())
def test_without_positions_all_axes_are_alike(spec):
    x = torch.randn(2, 3, 4, spec.head_dim, dtype=torch.float64)
    where = torch.arange(7, 11)
    where = where.expand(spec.axis_count, 4) if spec.axis_count > 1 else where
    rope = RotaryEmbedding(spec)
    assert torch.equal(rope.rotate(x, offset=7), rope.rotate(x, where))


@given(any_specs(), st.integers(0, 2**32 - 1))
def test_each_of_the_batch_and_each_token_is_alone(spec, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 2, 4, spec.head_dim, dtype=torch.float64, generator=draw)
    front = (spec.axis_count,) * (spec.axis_count > 1)
    where = torch.randint(-(2**31), 2**31, (*front, 3, 4), generator=draw)
    rope = RotaryEmbedding(spec)
    rotated = rope.rotate(x, where)
    heads_last = rope.rotate(x.transpose(1, 2), where, seq_dim=-3)
    assert torch.equal(heads_last.transpose(1, 2), rotated)
    for b in range(3):
        assert torch.equal(rotated[b], rope.rotate(x[b], where[..., b, :]))
        assert torch.equal(rotated[b : b + 1], rope.rotate(x[b : b + 1], where[..., b : b + 1, :]))
        assert torch.equal(rotated[b, 1], rope.rotate(x[b, 1], where[..., b : b + 1, :]))


# The orders of published models, by hand


def test_owners_and_exponents():
    def owners(found):
        return [axis for axis, _ in found]

    def exponents(found):
        return [exponent for _, exponent in found]

    eighths = [Fraction(i, 8) for i in range(8)]
    assert owners(axes.sectioned((3, 2, 3))) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert exponents(axes.sectioned((3, 2, 3))) == eighths
    assert owners(axes.interleaved((4, 2, 2))) == [0, 1, 2, 0, 1, 2, 0, 0]
    assert exponents(axes.interleaved((4, 2, 2))) == eighths
    assert owners(axes.ernie((3, 3, 2))) == [1, 2, 1, 2, 1, 2, 0, 0]
    assert exponents(axes.ernie((3, 3, 2))) == eighths
    assert owners(axes.pixtral(16)) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert exponents(axes.pixtral(16)) == eighths[0::2] + eighths[1::2]
    assert owners(axes.alternating(3)) == [0, 1, 0, 1, 0, 1]
    assert exponents(axes.alternating(3)) == [Fraction(j, 3) for j in (0, 0, 1, 1, 2, 2)]
    assert axes.axial((2, 1)) == ((0, 0), (0, Fraction(1, 2)), (1, 0))
    assert axes.axial((1, 2), order=(1, 0)) == ((1, 0), (1, Fraction(1, 2)), (0, 0))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_axis_has_its_share(sizes):
    for found in (axes.sectioned(sizes), axes.axial(sizes)):
        assert [sum(axis == a for axis, _ in found) for a in range(len(sizes))] == sizes
    count = len(sizes)
    for found in (
        axes.pixtral(2 * count * sizes[0], count),
        axes.alternating(sizes[0], tuple(range(count))),
    ):
        assert [sum(axis == a for axis, _ in found) for a in range(count)] == [sizes[0]] * count


@given(pairs=st.integers(1, 9), count=st.integers(1, 3), idle=st.integers(0, 2))
def test_geometric_frequencies_grow_from_one_to_theta_on_every_axis(pairs, count, idle):
    found = axes.geometric(pairs, count, idle)
    assert found[:idle] == ((0, None),) * idle
    for axis in range(count):
        exponents = [exponent for a, exponent in found[idle:] if a == axis]
        assert exponents == [Fraction(-j, pairs - 1) if j else 0 for j in range(pairs)]
    assert [a for a, _ in found[idle:]] == [*range(count)] * pairs
    assert axes.geometric(pairs) == axes.geometric(pairs, 1, 0)


@given(
    sections=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    pairs=st.integers(1, 24) | st.none(),
)
def test_axes_take_turns_until_one_has_its_share(sections, pairs):
    count, total = len(sections), sum(sections) if pairs is None else pairs
    found = axes.interleaved(sections, pairs)
    assert [e for _, e in found] == [Fraction(i, total) for i in range(total)]
    for i, (axis, _) in enumerate(found):
        turn, at = divmod(i, count)
        assert axis == (at if at and turn < sections[at] else 0)
    assert axes.round_robin(total, count) == tuple(
        (i % count, Fraction(i, total)) for i in range(total)
    )
    assert axes.round_robin(total) == axes.round_robin(total, 2)


# What a spec says besides


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    count=st.integers(1, 3),
    idle=st.integers(0, 2),
    part=any_specs(),
)
def test_axes_are_shown_as_the_code_that_makes_them(sizes, count, idle, part):
    pairs, turned = sizes[0], tuple(reversed(range(len(sizes))))
    for given_axes in (
        axes.sectioned(sizes),
        axes.interleaved(sizes),
        axes.interleaved(sizes, pairs),
        axes.round_robin(pairs, count) if pairs >= count else axes.round_robin(pairs, 1),
        axes.axial(sizes),
        axes.axial(sizes, turned),
        axes.pixtral(2 * pairs * count, count),
        axes.alternating(pairs),
        axes.alternating(pairs, (1, 0)),
        axes.geometric(pairs, count, idle),
        axes.ernie((pairs, pairs, sizes[-1])),
        part.axes,
    ):
        written = eval(as_code(given_axes), {"axes": axes})
        assert check_axes(written, len(given_axes)) == given_axes


def test_axes_are_shown_briefly():
    shown = [
        (axes.sectioned((3, 2, 3)), "axes.sectioned((3, 2, 3))"),
        (axes.interleaved((4, 3, 2)), "axes.interleaved((4, 3, 2))"),
        (axes.interleaved((9, 2, 1), 7), "axes.interleaved((4, 2, 1))"),
        (axes.round_robin(5, 2), "axes.interleaved((3, 2))"),
        (axes.axial((2, 3)), "axes.axial((2, 3))"),
        (axes.axial((2, 3), (1, 0)), "axes.axial((2, 3), (1, 0))"),
        (axes.pixtral(12), "axes.pixtral(12, 2)"),
        (axes.alternating(3), "axes.alternating(3)"),
        (axes.alternating(3, (1, 0)), "axes.alternating(3, (1, 0))"),
        (axes.geometric(3, 2, 1), "axes.geometric(3, 2, 1)"),
        (axes.ernie((3, 3, 2)), "axes.ernie((3, 3, 2))"),
        (((0, Fraction(1, 3)),) * 4, "((0, '1/3'),) * 4"),
        (((0, Fraction(2)), (0, None), (0, Fraction(1, 3))), "((0, 2), (0, None), (0, '1/3'))"),
    ]
    assert [as_code(made) for made, _ in shown] == [code for _, code in shown]


def test_continuous_positions_are_angles_in_float64_with_gradients():
    spec = RotarySpec(8, theta=100.0, axes=axes.axial((2, 2)), continuous=True)
    rope, where = RotaryEmbedding(spec), torch.rand(2, 5, dtype=torch.float64)
    cos, sin = rope.tables(where)
    angles = torch.stack([where[0], where[0] / 10, where[1], where[1] / 10], dim=-1)
    torch.testing.assert_close(cos, angles.cos().float(), rtol=0, atol=6e-8)
    torch.testing.assert_close(sin, angles.sin().float(), rtol=0, atol=6e-8)
    where.requires_grad_()
    rope.rotate(torch.randn(1, 1, 5, 8), where).sum().backward()
    assert where.grad is not None
    assert where.grad.abs().sum() > 0
    integers = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    x = torch.randn(1, 1, 5, 8)
    assert torch.equal(rope.rotate(x, integers), rope.rotate(x, integers.double()))


def test_fractions_may_be_written_as_floats_ints_or_strings():
    assert RotarySpec(4, axes=[[0, 0], [0, 0.5]]) == RotarySpec(4, axes=((0, 0), (0, "1/2")))
    assert hash(RotarySpec(4, axes=[[0, 0], [1, 0.5]], blocks=[2, 2]))


def test_a_spec_that_cannot_be_is_an_error():
    def spec(**arguments):
        return lambda: RotarySpec(8, **arguments)

    one_each = "axes must have one (axis, exponent) for each"
    number = "each exponent of axes must be a finite number, or a fraction such as '1/3', got"
    gap, size = (
        "axes must use all axes from 0 on, without a gap, got",
        "each size of blocks must be",
    )
    check_refused(
        ValueError,
        (spec(axes=((0, "x"),)), f"{number} 'x'"),
        (spec(axes=((0, math.inf),)), number),
        (spec(axes=((0, math.nan),)), number),
        (spec(axes=()), "rotary_dim must be at least 2, one pair of dimensions, got 0"),
        (spec(axes=((0, 0),) * 5), "rotary_dim must be at most head_dim=8, got 10"),
        (spec(axes=((0, 0),) * 3, rotary_dim=8), f"{one_each} of R/2 = 4 pairs, got 3"),
        (spec(axes=((0, 0), (2, 0))), f"{gap} [0, 2]"),
        (spec(axes=((1, 0),)), f"{gap} [1]"),
        (spec(axes=((-1, 0),)), "each axis of axes must be at least 0, got -1"),
        (spec(blocks=(4, 2)), "blocks must be sizes that sum to rotary_dim=8, got (4,"),
        (spec(blocks=(5, 3)), "blocks must be even sizes, got (5, 3)"),
        (spec(blocks=(8, 0)), f"{size} at least 2, one pair of dim"),
        (
            spec(blocks=(4, 4), write_pairing="interleaved"),
            "write_pairing must be pairing='half' if there are blocks, got 'interleaved'",
        ),
        (spec(write_pairing="neox"), 'write_pairing must be "half" (dimensions i and'),
        (spec(amplitude=0.0), "amplitude must be finite and above 0, got 0.0"),
        (spec(start=-1), "start must be at least 0, got -1"),
        (spec(start=3), "start must be even if all of it rotates, got 8 - 3; set rotary"),
        (spec(start=4, rotary_dim=6), "at most head_dim=8 - start=4, got 6"),
    )
    check_refused(
        TypeError,
        (spec(axes=3), f"{one_each} pair, got 3"),
        (spec(axes=((0, 0), 1)), f"{one_each} pair"),
        (spec(axes=((0.0, 0),)), "each axis of axes must be an int, got 0.0"),
        (spec(blocks=4), "blocks must be a tuple of ints, got 4"),
        (spec(blocks=("a",)), f"{size} an int, got 'a' of type str"),
        (spec(blocks=(4.0, 4.0)), f"{size} an int, got 4.0"),
        (spec(continuous=1), "continuous must be True or False, got 1"),
        (spec(reverse="yes"), "reverse must be True or False, got 'yes'"),
        (spec(amplitude="1"), "amplitude must be a float, got '1' of type str"),
    )


def test_positions_that_do_not_fit_the_axes_are_an_error():
    rope, x = (
        RotaryEmbedding(RotarySpec(8, axes=axes.sectioned((2, 1, 1)))),
        torch.zeros(2, 3, 5, 8),
    )
    floats = RotaryEmbedding(RotarySpec(8, continuous=True))
    five, each = torch.arange(5), "positions must have a first axis of size 3, one row of positions"
    check_refused(
        ValueError,
        (lambda: rope.rotate(x, five), "positions must be (3, S) or (3, B, S), got shape (5,)"),
        (lambda: rope.rotate(x, five.expand(2, 5)), f"{each} for each axis"),
        (lambda: rope.rotate(x, five[:4].expand(3, 4)), "(3, 5) or (3, 2, 5) for x of shape"),
        (lambda: rope(x, x, None, five), "key_positions must be (3, S) or (3, B, S), got shape"),
    )
    check_refused(
        TypeError,
        (lambda: rope.rotate(x, five.expand(3, 5).double()), "dtype, got torch.float64"),
        (lambda: floats.rotate(x, five.half()), "be float32 or float64, got torch.float16"),
    )


def test_axes_that_cannot_be_are_an_error():
    check_refused(
        ValueError,
        (lambda: axes.axial(()), "pairs must have a size for each axis, got ()"),
        (lambda: axes.axial((2, 0)), "pairs[1] must be at least 1, got 0"),
        (lambda: axes.axial((2, 2), (0, 0)), "order must name each of 2 axes once"),
        (lambda: axes.pixtral(6), "rotary_dim must be a multiple of 4, got 6"),
        (lambda: axes.alternating(0), "pairs must be at least 1, got 0"),
        (lambda: axes.sectioned([]), "sections must have a size for each axis, got []"),
        (lambda: axes.interleaved((2, -1)), "sections[1] must be at least 1, got -1"),
        (lambda: axes.pixtral(8, 0), "count must be at least 1, got 0"),
        (lambda: axes.pixtral(2, 2), "rotary_dim must be at least 4, got 2"),
        (lambda: axes.interleaved((2, 1), 0), "pairs must be at least 1, got 0"),
        (lambda: axes.round_robin(0), "pairs must be at least 1, got 0"),
        (lambda: axes.round_robin(4, 0), "count must be at least 1, got 0"),
        (lambda: axes.geometric(0), "pairs must be at least 1, got 0"),
        (lambda: axes.geometric(2, 0), "count must be at least 1, got 0"),
        (lambda: axes.geometric(2, idle=-1), "idle must be at least 0, got -1"),
        *(
            (
                lambda make=make, many=many: make(*many),
                "must have at most 4,096 pairs in total, got",
            )
            for make, many in [
                (axes.axial, [(2**11, 2**11 + 1)]),
                (axes.pixtral, [2**40]),
                (axes.alternating, [2**11 + 1]),
                (axes.sectioned, [(2**40, 1)]),
                (axes.interleaved, [(2, 1), 2**40]),
                (axes.round_robin, [2**12 + 1]),
                (axes.ernie, [(2**11, 2**11, 1)]),
                (axes.geometric, [2**10, 4, 1]),
            ]
        ),
        (lambda: axes.ernie(()), "sections must have a size for each axis"),
        (lambda: axes.ernie((3, 2, 1)), "the first two equal, got (3, 2, 1)"),
        (lambda: axes.ernie((3, 3)), "pairs of height, width and time, the first two"),
    )
    sizes = "must be a list or tuple of sizes, one for each axis, got 8"
    forms = (axes.axial, axes.sectioned, axes.interleaved, axes.ernie)
    check_refused(
        TypeError,
        (lambda: axes.pixtral(8.0), "rotary_dim must be an int, got 8.0 of type float"),
        (lambda: axes.sectioned((2, "2")), "sections[1] must be an int, got '2'"),
        *((lambda form=form: form(8), sizes) for form in forms),
    )


@given(st.integers(2, 40), st.integers(1, 3), st.integers(0, 3))
def test_geometric_frequencies(pairs, count, idle):
    """From 1 to theta, a constant factor apart; repr names the call."""
    spec = RotarySpec(2 * (idle + pairs * count), axes=axes.geometric(pairs, count, idle))
    speeds = spec.inverse_frequencies()
    assert not speeds[:idle].any()
    expected = Decimal(10_000) ** (Decimal(1) / (pairs - 1))
    assert (speeds[idle + count :] / speeds[idle:-count] - float(expected)).abs().max() < 1e-9
    assert f"axes.geometric({pairs}, {count}, {idle})" in repr(spec) or count * idle == 0
    assert eval(repr(spec), {"RotarySpec": RotarySpec, "axes": axes}) == spec


def test_an_exponent_of_none_does_not_rotate():
    with pytest.raises(ValueError, match="axes must have a pair that rotates"):
        RotarySpec(4, axes=((0, None), (0, None)))
    spec = RotarySpec(6, axes=((0, 0), (0, None), (0, Fraction(1, 2))), theta=100.0)
    assert spec.inverse_frequencies().tolist() == [1.0, 0.0, 0.1]


def test_the_borders_of_what_axes_may_be():
    """4,096 pairs, and no more; an exponent is named by its place."""
    assert len(axes.axial((4096,))) == len(axes.pixtral(8192)) == 4096
    check_refused(
        ValueError,
        (lambda: axes.pixtral(8196), "must have at most 4,096 pairs in total, got 4,098"),
        (lambda: axes.pixtral(8193), "rotary_dim must be a multiple of 4, got 8193"),
    )
    check_refused(TypeError, (lambda: RotarySpec(4, axes=((0, 0), (0, [1]))), "got [1] for pair 1"))
