"""The figure of wavelengths: a line for each rope, and one for each context.

These fail if a rope or a context is not drawn, or if a pair that does not rotate is drawn.
"""

import math

import pytest

from ropewalk.figures.static import svg
from ropewalk.figures.wavelengths import Line, wavelength_figure


def test_ropes_and_contexts_are_drawn():
    pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")
    lines = [Line("plain", (6.28, 62.8), dashed=True), Line("p-RoPE", (6.28, math.nan))]
    figure = wavelength_figure(lines, {"context 50": 50})
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines[:2]] == ["plain", "p-RoPE"]
    assert math.isnan(axes.lines[1].get_ydata()[1])
    assert set(axes.lines[2].get_ydata()) == {50}
    assert axes.get_yscale() == "log"
    content = svg(figure)
    assert b"context 50" in content
    assert svg(wavelength_figure(lines, {"context 50": 50})) == content  # the same bytes each time
