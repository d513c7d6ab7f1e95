"""`verify` of functions of positions on several axes, as models of images and videos have them.

It fails if a right function has a fault in any form that such positions have, or if a mistake with
axes passes or is named as another.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import RotaryEmbedding, RotarySpec, axes, tools

PAIRINGS = ("half", "interleaved")
DIMS = (16, 24, 24)
SPEC = RotarySpec(64, pairing="interleaved", axes=axes.axial((8, 12, 12)))
COORDINATES = RotarySpec(32, theta=100.0, axes=axes.axial((8, 8)), continuous=True)

#: Positions (A, S) or (A, B, S) from those in each form.
FORMS = {
    "(A, S)": lambda p: p,
    "(S, A)": lambda p: p.mT,
    "(A, B, S)": lambda p: p,
    "(B, S, A)": lambda p: p.movedim(-1, 0),
    "(B, A, S)": lambda p: p.movedim(1, 0),
}
sizes = st.lists(st.integers(3, 9), min_size=2, max_size=4)
specs = st.builds(
    lambda rule, pairing, theta: RotarySpec(2 * len(rule), theta=theta, pairing=pairing, axes=rule),
    st.one_of(sizes.map(axes.axial), sizes.map(axes.sectioned)),
    st.sampled_from(PAIRINGS),
    st.sampled_from([256.0, 10_000.0]),
)


def inverse(dim, theta=10_000.0):
    return theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def angles(positions, dims=DIMS, theta=10_000.0, of=lambda p: p):
    """One axis after the other: (..., S, R/2)."""
    parts = zip(positions, dims, strict=True)
    return torch.cat([of(p)[..., None].double() * inverse(d, theta) for p, d in parts], -1)


def turn(x, at):
    """Neighbors, as complex numbers."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * at).to(pairs.dtype)).flatten(-2).type_as(x)


def turn_halves(x, at):
    a, b = x.float().chunk(2, -1)
    cos, sin = at.cos().float(), at.sin().float()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


def by(make):
    """A function of positions (A, S) that turns neighbors by these angles."""
    return lambda x, positions: turn(x, make(positions))


def in_form(rope, form):
    def rotate(q, k, positions):
        assert positions.ndim == form.count(",") + 1
        return rope(q, k, positions=FORMS[form](positions))

    return rotate


def products(positions):
    """Frequencies times positions as a product of matrices, which autocast rounds."""
    parts = zip(positions, DIMS, strict=True)
    return torch.cat([(p[:, None].float() @ inverse(d)[None].float()).float() for p, d in parts], 1)


@settings(max_examples=12)
@given(specs, st.sampled_from(list(FORMS)))
def test_right_functions_pass_in_every_form(spec, form):
    report = tools.verify(in_form(RotaryEmbedding(spec), form), like=spec)
    assert report.right, [c for c in report.checks if c.fault]
    assert f"positions {form}" in report.form
    named = {check.name for check in report.checks if check.verdict == "right"}
    assert {"axes", "frequencies", "linear", "batch", "gradient", "under autocast"} <= named
    assert {f"axis {axis}" for axis in range(spec.axis_count)} <= named


@settings(max_examples=12)
@given(sizes, sizes, st.sampled_from(PAIRINGS), st.randoms())
def test_another_division_or_order_of_axes_is_named(first, second, pairing, random):
    order = random.sample(range(len(first)), len(first))
    made = axes.axial(first, order=order)
    if random.random() < 0.5 and sum(second) == sum(first):
        made = axes.axial(second)
    spec = RotarySpec(2 * sum(first), pairing=pairing, axes=axes.axial(first))
    other = RotarySpec(2 * sum(first), pairing=pairing, axes=made)
    faults = tools.verify(RotaryEmbedding(other), like=spec).faults
    assert faults == (() if made == spec.axes else ("frequencies",))


def tables(times):
    return lambda ids: tuple(times(t) for t in (angles(ids.mT).cos(), angles(ids.mT).sin()))


RIGHT = {
    "whatever comes": (by(angles), SPEC),
    "heads second": (lambda x, ids: turn(x, angles(ids.unbind(-1))[:, None]), SPEC),
    "neighbors": (tables(lambda t: t.repeat_interleave(2, -1)), SPEC),
    "halves": (tables(lambda t: torch.cat((t, t), -1)), SPEC),
    "coordinates": (
        lambda x, coords: turn_halves(x, angles(coords.mT, (16, 16), 100.0)),
        COORDINATES,
    ),
    "counts from 1 on an axis": (by(lambda p: angles([p[0], p[1] + 1, p[2]])), SPEC),
    "moves keys": (lambda k, old, new: turn(k, angles(new - old)), SPEC),
    "text": (lambda x, positions: turn(x, angles([positions] * 3)), SPEC),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_has_no_fault(name):
    function, spec = RIGHT[name]
    report = tools.verify(function, like=spec)
    assert report.right, [c for c in report.checks if c.fault]
    said = {(check.name, check.verdict) for check in report.checks}
    assert (("axis 1, position 0", "remark") in said) == (name == "counts from 1 on an axis")
    assert (("axes", "not tested") in said) == (name == "text")


def exponents_of_one_rope(positions):
    parts = zip(positions, inverse(64).split([8, 12, 12]), strict=True)
    return torch.cat([p[:, None] * f for p, f in parts], -1)


WRONG = {
    "exchanged": (by(lambda p: angles([p[0], p[2], p[1]])), "frequencies"),
    "fewer columns": (lambda ids: torch.exp(1j * angles(ids.mT, (16, 16, 24))), "frequencies"),
    "bfloat16": (by(lambda p: angles(p, of=torch.Tensor.bfloat16)), "half-precision-angles"),
    "float16": (by(lambda p: angles(p, of=torch.Tensor.half)), "half-precision-angles"),
    "dtype of x": (lambda x, ids: turn(x, angles(ids.mT.to(x.dtype))), "half-precision-angles"),
    "autocast": (by(products), "half-precision-angles"),
    "theta": (by(lambda p: angles(p, theta=23_456.0)), "theta"),
    "exponents": (by(exponents_of_one_rope), "wrong-exponent"),
    "pairing": (lambda x, positions: turn_halves(x, angles(positions)), "pairing"),
    "one ignored": (by(lambda p: angles([p[0], p[1], 0 * p[2]])), "positions-ignored"),
    "one for all": (by(lambda p: angles([p[0]] * 3)), "positions-ignored"),
    "all ignored": (by(lambda p: angles([torch.arange(p.shape[1])] * 3)), "positions-ignored"),
    "backwards": (by(lambda p: -angles(p)), "wrong-sign"),
    "keys from 1": (
        lambda q, k, ids: (turn(q, angles(ids.mT)), turn(k, angles(ids.mT + 1))),
        "keys-shifted",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_named(name):
    function, fault = WRONG[name]
    assert tools.verify(function, like=SPEC).faults == (fault,)


@pytest.mark.parametrize("count", [2, 4])
def test_positions_of_another_number_of_axes_are_refused(count):
    def other(x, ids):
        assert ids.shape[-1] == count
        return turn(x, angles(ids.unbind(-1), [64 // count] * count))

    says = f"positions must have 3 axes, as in like; the target takes {count}"
    with pytest.raises(ValueError, match=says):
        tools.verify(other, like=SPEC)
