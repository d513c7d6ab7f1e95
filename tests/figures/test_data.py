"""Curves of figures: means, smoothing, and the end of the frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.figures.plot_data import Curve, ceiling, mean_curve, smoothed

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
