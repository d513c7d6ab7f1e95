"""Time spans and differences as text, with enough digits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.lab.report.formats import format_duration
from ropewalk.lab.report.metrics import digits_of_difference


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.44, "12.4 s"), (59.99, "60.0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds, said):
    assert format_duration(seconds) == said


@given(st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1e-9, 0.0004, -0.04]))
def test_a_difference_has_the_digits_that_show_it(difference):
    """Fails if a small difference is written as 0, or 0 with many digits."""
    digits = digits_of_difference({"difference": difference}, {"digits": 1})
    written = float(f"{difference:.{digits}f}")
    if round(difference, 6) == 0:
        assert digits == 1
    else:
        assert written != 0
        assert digits == 1 or abs(difference) < 10 ** (1 - digits)
