"""The picture of errors of angles: drawn numbers are the given ones.

These fail if an error of a full turn is taken, or if an error of 0 moves the logarithmic axis.
"""

import math

import pytest

from ropewalk import figures

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")


def test_errors_are_what_was_given():
    errors = {"float32": [1e-6, 1e-3, 0.5], "exact": [0.0, 1e-9, 0.0]}
    picture = figures.angle_error([10, 1000, 100_000], errors)
    (axes,) = picture.figure().axes
    assert list(axes.lines[0].get_ydata()) == errors["float32"]
    first, second, third = axes.lines[1].get_ydata()
    assert (math.isnan(first), second, math.isnan(third)) == (True, 1e-9, True)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert set(axes.lines[2].get_ydata()) == {math.pi}
    assert "float32, 1e-06 at 10, 0.5 at 100,000, at most 0.5" in picture.alt


@pytest.mark.parametrize(
    ("positions", "numbers", "message"),
    [
        ([0, 1], [0.0, 0.0], r"positions must be above 0, got 0\.0 at index 0"),
        ([1, 2], [0.0, 3.5], r"errors\['a'\] must be from 0 to π radians, got 3\.5 at position 2"),
        ([1, 2], [0.0, -0.1], r"got -0\.1 at position 2; subtract full turns"),
        ([1, 2], [0.0], r"errors\['a'\] must have one number for each of the 2 positions, got 1"),
    ],
)
def test_wrong_errors_are_refused(positions, numbers, message):
    with pytest.raises(ValueError, match=message):
        figures.angle_error(positions, {"a": numbers})
