"""Plain data of figures: means and smoothing of curves, the end of the frame, checked numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.figures.plot_data import (
    Curve,
    ceiling,
    increasing,
    like,
    mean_curve,
    named,
    positive,
    row,
    short,
    smoothed,
    table,
)

pytest.importorskip("numpy")

CURVES = st.lists(st.floats(0, 10), min_size=1, max_size=30)


@given(CURVES, st.floats(-5, 5))
def test_mean_of_curves(losses, shift):
    xs = tuple(float(x) for x in range(len(losses)))
    one = Curve(1, xs, tuple(losses))
    other = Curve(2, xs, tuple(loss + 2 * shift for loss in losses))
    lost = Curve(3, xs, tuple(99.0 for _ in losses), diverged=True)
    mean = mean_curve([one, other, lost])
    assert mean is not None
    assert mean.x == xs
    assert mean.loss == pytest.approx([loss + shift for loss in losses])


def test_mean_of_curves_on_different_grids():
    straight = Curve(1, (0.0, 10.0), (0.0, 10.0))
    finer = Curve(2, (2.0, 4.0, 12.0), (4.0, 6.0, 14.0))
    mean = mean_curve([finer, straight])
    assert mean is not None
    assert (mean.x, mean.loss) == ((2.0, 4.0, 10.0), pytest.approx((3.0, 5.0, 11.0)))


@given(CURVES, st.sampled_from([1, 3, 5]))
def test_smoothing(losses, width):
    curve = Curve(1, tuple(map(float, range(len(losses)))), tuple(losses))
    found = smoothed(curve, width)
    assert found.x == curve.x
    assert min(losses) - 1e-9 <= min(found.loss) <= max(found.loss) <= max(losses) + 1e-9
    if width == 1:
        assert found == curve


def test_the_frame_leaves_out_the_fall_and_nothing_else():
    curve = Curve(
        1,
        tuple(map(float, range(101))),
        (50.0, 20.0, 15.0, 12.0, *(9.0 - i / 100 for i in range(97))),
    )
    assert ceiling([curve]) == 9.0


def test_anything_that_numpy_reads_is_a_row():
    assert row("x", torch.tensor([1, 2], dtype=torch.bfloat16)) == [1.0, 2.0]
    assert row("x", torch.nn.Parameter(torch.ones(1))) == [1.0]
    assert table("x", [(1, 2), (3, 4)]) == [[1.0, 2.0], [3.0, 4.0]]
    assert math.isnan(row("x", [math.nan], gaps=True)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: row("x", [1.0, math.nan]), "x must be finite, got nan at index 1"),
        (lambda: row("x", [math.inf], gaps=True), "x must be finite, got inf at index 0"),
        (lambda: row("x", []), "x must have at least 1 number, got 0"),
        (lambda: row("x", [[1.0]]), r"x must be a row of numbers, got shape \(1, 1\)"),
        (lambda: row("x", "abc"), "x must be a row of numbers, got 'abc'"),
        (lambda: table("x", [[1.0], [1.0, 2.0]]), "x must be rows of numbers, all of the same"),
        (lambda: table("x", [[]]), r"x must have at least one number, got shape \(1, 0\)"),
        (lambda: table("x", [[1.0, math.nan]]), "x must be finite, got nan in row 0, column 1"),
        (lambda: positive("x", [0.0]), r"x must be above 0, got 0\.0 at index 0"),
        (lambda: increasing("x", [1, 1]), r"x must increase, got 1\.0 after 1\.0; sort them"),
        (lambda: like("x", [1.0], "pairs", [1.0, 2.0]), "x must have one number for each of the 2"),
        (lambda: named("x", {}, table), "x must have at least one entry, got an empty dict"),
    ],
)
def test_other_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_row_without_names_is_refused():
    with pytest.raises(TypeError, match=r"x must be a dict from names to numbers, got \[1\]"):
        named("x", [1], table)


def test_numbers_in_words():
    assert [short(n) for n in (0, 0.25, -1 / 3, 54410.2, 9.5e-7, 3e12)] == [
        "0", "0.25", "-0.333", "54,410", "9.5e-07", "3e+12",
    ]  # fmt: skip
