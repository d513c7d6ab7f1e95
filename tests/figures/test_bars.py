"""Pictures of bars: lengths, whiskers and labels are the given ones."""

import pytest

from ropewalk.figures.drawing import DARK, LIGHT, style
from ropewalk.figures.score_pictures import Bar, bars

matplotlib = pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

ROWS = [Bar("ours", 1.25, (1.0, 1.5), "3 ms", 0), Bar("theirs", 5.0, (4.5, 6.0), "12 ms", 1)]


@pytest.mark.parametrize(("dark", "scheme"), [(False, LIGHT), (True, DARK)])
def test_bars_are_what_was_given(dark, scheme):
    picture = bars({"prefill": ROWS, "decode": ROWS[:1]}, "time, × copy", limit=1.0)
    first, second = picture.figure(dark=dark).axes
    assert [bar.get_width() for bar in first.patches] == [1.25, 5.0]
    colors = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in first.patches]
    assert colors == [style(0).color.lower(), style(1).color.lower()]
    assert [list(line.get_xdata()) for line in first.lines] == [[1.0, 1.5], [4.5, 6.0], [1.0, 1.0]]
    assert {line.get_color() for line in first.lines} == {scheme.ink}
    assert [text.get_text() for text in first.texts] == ["3 ms", "12 ms"]
    assert {text.get_color() for text in first.texts} == {scheme.ink}
    assert first.get_xlim() == (0, pytest.approx(6.9))
    assert second.get_xlabel() == "time, × copy"
    assert picture.data["prefill"][1]["value"] == 5.0
    assert picture.alt == (
        "Bars: time, × copy, 1. prefill: ours, 1.25 (3 ms); theirs, 5 (12 ms). "
        "decode: ours, 1.25 (3 ms)."
    )
