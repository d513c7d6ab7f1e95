"""`verify` of functions of positions on several axes, as models of images and videos have them.

It fails if a right function has a fault in any form of positions, or a mistake is not named.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ropes_of_others import by_angles, inverse

from ropewalk import RotaryEmbedding, RotarySpec, axes, tools

DIMS = (16, 24, 24)
SPEC = RotarySpec(64, axes=axes.axial((8, 12, 12)))

#: Positions (A, S) or (A, B, S) from those in each form.
FORMS = {
    "(A, S)": lambda p: p,
    "(S, A)": lambda p: p.mT,
    "(A, B, S)": lambda p: p,
    "(B, S, A)": lambda p: p.movedim(-1, 0),
    "(B, A, S)": lambda p: p.movedim(1, 0),
}
sizes = st.lists(st.integers(3, 9), min_size=2, max_size=4)
pairings = st.sampled_from(("half", "interleaved"))
rules = sizes.map(axes.axial) | sizes.map(axes.sectioned)


@settings(max_examples=8)
@given(rules, pairings, st.sampled_from([256.0, 10_000.0]), st.sampled_from(list(FORMS)))
def test_right_functions_pass_in_every_form(rule, pairing, theta, form):
    spec = RotarySpec(2 * len(rule), theta=theta, pairing=pairing, axes=rule)

    def rotate(q, k, positions):
        assert positions.ndim == form.count(",") + 1
        return RotaryEmbedding(spec)(q, k, positions=FORMS[form](positions))

    report = tools.verify(rotate, like=spec)
    assert report.faults == ()
    assert f"positions {form}" in report.form
    wanted = {"frequencies", "linear", "batch", "gradient", "under autocast"}
    wanted |= {f"axis {axis}" for axis in range(spec.axis_count)}
    assert wanted <= {check.name for check in report.with_verdict("right")}


@settings(max_examples=8)
@given(sizes, sizes, pairings, st.randoms())
def test_another_division_or_order_of_axes_is_named(first, second, pairing, random):
    made = axes.axial(first, order=random.sample(range(len(first)), len(first)))
    if random.random() < 0.5 and sum(second) == sum(first):
        made = axes.axial(second)
    spec = RotarySpec(2 * sum(first), pairing=pairing, axes=axes.axial(first))
    faults = tools.verify(RotaryEmbedding(replace(spec, axes=made)), like=spec).faults
    assert faults == (() if made == spec.axes else ("frequencies",))


def angles(positions, dims=DIMS, theta=10_000.0, of=torch.Tensor.double):
    """One axis after the other: (..., S, R/2)."""
    parts = zip(positions, dims, strict=True)
    return torch.cat([of(p)[..., None].double() * inverse(d, theta) for p, d in parts], -1)


def products(p):
    """Angles by products of matrices, which autocast rounds."""
    parts = zip(p[..., None].float(), DIMS, strict=True)
    return torch.cat([(each @ inverse(d)[None]).float() for each, d in parts], -1)


def by(make):
    """A function of positions (A, S) that turns halves by these angles."""
    return lambda x, positions: by_angles(x, make(positions))


def keys_by(change):
    """A function of q, k and positions (A, S) that turns keys at other positions."""
    return lambda q, k, pos: (by_angles(q, angles(pos)), by_angles(k, angles(change(pos))))


SQUARE = RotarySpec(32, theta=100.0, axes=axes.axial((8, 8)), continuous=True)
OTHER_SPECS = {"coordinates": SQUARE, "rounded coordinates": SQUARE}
OTHER_SPECS["pairing"] = replace(SPEC, pairing="interleaved")
RIGHT, ROUNDED, IGNORED = "", "half-precision-angles", "positions-ignored"
FUNCTIONS = {
    "whatever comes": (RIGHT, by(angles)),
    "heads second": (RIGHT, lambda x, ids: by_angles(x, angles(ids.unbind(-1))[:, None])),
    "tables": (RIGHT, lambda ids: torch.exp(1j * angles(ids.mT))),
    "coordinates": (RIGHT, by(lambda p: angles(p, (16, 16), 100.0))),
    "counts from 1 on an axis": (RIGHT, by(lambda p: angles([p[0], p[1] + 1, p[2]]))),
    "moves keys": (RIGHT, lambda k, old, new: by_angles(k, angles(new - old))),
    "text": (RIGHT, lambda x, positions: by_angles(x, angles([positions] * 3))),
    "rounded coordinates": ("frequencies", by(lambda p: angles(p.round(), (16, 16), 100.0))),
    "exchanged": ("frequencies", by(lambda p: angles(p[[0, 2, 1]]))),
    "fewer columns": ("frequencies", lambda ids: torch.exp(1j * angles(ids.mT, (16, 16, 24)))),
    "bfloat16": (ROUNDED, by(lambda p: angles(p, of=torch.Tensor.bfloat16))),
    "float16": (ROUNDED, by(lambda p: angles(p, of=torch.Tensor.half))),
    "dtype of x": (ROUNDED, lambda x, ids: by_angles(x, angles(ids.mT.to(x.dtype)))),
    "autocast": (ROUNDED, by(products)),
    "theta": ("theta", by(lambda p: angles(p, theta=23_456.0))),
    "exponents": ("wrong-exponent", by(lambda p: p[list(SPEC.axis_of_pair)].mT * inverse(64))),
    "pairing": ("pairing", by(angles)),
    "one ignored": (IGNORED, by(lambda p: angles([p[0], p[1], 0 * p[2]]))),
    "one for all": (IGNORED, by(lambda p: angles([p[0]] * 3))),
    "all ignored": (IGNORED, by(lambda p: angles([torch.arange(p.shape[1])] * 3))),
    "backwards": ("wrong-sign", by(lambda p: -angles(p))),
    "keys from 1": ("keys-shifted", keys_by(lambda p: p + 1)),
    "keys exchanged": ("frequencies", keys_by(lambda p: p[[0, 2, 1]])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_code_has_no_fault_and_mistakes_are_named(name):
    fault, function = FUNCTIONS[name]
    report = tools.verify(function, like=OTHER_SPECS.get(name, SPEC))
    assert " ".join(report.faults) == fault
    assert name != "text" or "axes" in {c.name for c in report.with_verdict("not tested")}


@pytest.mark.parametrize("count", [2, 4])
def test_positions_of_another_number_of_axes_are_refused(count):
    rotate = by(lambda p: angles(p, [64 // count] * count))
    with pytest.raises(ValueError, match=f"must have 3 axes, as in like; the target takes {count}"):
        tools.verify(rotate, like=SPEC)


def test_frequencies_above_a_turn_per_position():
    """LTX's coordinates lie in [-π/2, π/2], and its fastest pairs turn by 15,708 per unit."""
    ltx = RotarySpec(32, start=2, pairing="interleaved", axes=axes.geometric(5, 3), continuous=True)
    rope = RotaryEmbedding(ltx)
    assert not tools.verify(rope, like=ltx).faults
    exchanged = tools.verify(lambda x, positions: rope.rotate(x, positions[[0, 2, 1]]), like=ltx)
    assert exchanged.faults == ("frequencies",)
