"""Pictures of losses: what is drawn are the numbers, with the words for them.

These fail if a line or a bar is drawn elsewhere than its number, if rounding looks like a change,
or if a mean has seeds that diverged.
"""

import pytest

from ropewalk import figures
from ropewalk.figures.drawing import style

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

LOSSES = {"none": [3.1, 3.0, 4.2], "yarn": [3.15, 3.05, 2.9]}
ONE, OTHER = figures.Curve(1, (1.0, 2.0), (3.0, 2.5)), figures.Curve(2, (1.0, 2.0), (4.0, 3.0))


def test_losses_are_what_was_given():
    picture = figures.loss_curves({"a": [ONE]}, {"a": [ONE], "b": [ONE, OTHER]}, "words")
    panels = picture.figure().axes
    assert [[list(line.get_ydata()) for line in axes.lines] for axes in panels] == [
        [[3.0, 2.5]] * 2,
        [[3.0, 2.5]] * 3 + [[4.0, 3.0], [3.5, 2.75]],
    ]
    assert panels[1].lines[2].get_color() == style(1).color
    assert [axes.get_xlabel() for axes in panels] == ["words", "words"]
    assert picture.data["validation"]["b"]["mean"] == {"x": [1.0, 2.0], "loss": [3.5, 2.75]}
    assert picture.data["training"]["a"]["seeds"][0]["loss"] == [3.0, 2.5]
    assert (
        "Training and validation loss by words. Last training loss, mean of seeds: a, 2.5 at 2."
        in picture.alt
    )
    assert picture.alt.endswith("Last validation loss, mean of seeds: a, 2.5 at 2; b, 2.75 at 2.")


def test_a_diverged_curve_ends_in_a_cross_and_out_of_the_mean():
    diverged = figures.Curve(2, (1.0,), (9.0,), diverged=True)
    picture = figures.loss_curves({"a": [ONE, diverged], "b": [diverged]})
    (axes,) = picture.figure().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [
        [3.0, 2.5], [9.0], [9.0], [3.0, 2.5], [9.0], [9.0],
    ]  # fmt: skip
    assert [axes.lines[place].get_marker() for place in (2, 5)] == ["x", "x"]
    assert "a, 2.5 at 2, 1 of 2 seeds diverged; b, 1 of 1 seeds diverged." in picture.alt
    (legend,) = picture.figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_losses_and_bars_are_the_numbers():
    picture = figures.loss_by_context(
        [128, 256, 512], LOSSES, halves={"yarn": [0.1, 0.2, 0.3]}, original=256, relative_to="x"
    )
    (axes,) = picture.figure().axes
    none, yarn = axes.containers
    assert list(none.lines[0].get_ydata()) == LOSSES["none"]
    assert list(yarn.lines[0].get_xdata()) == [128, 256, 512]
    (bars,) = yarn.lines[2]
    ends = [list(segment[:, 1]) for segment in bars.get_segments()]
    assert ends[2] == pytest.approx([2.6, 3.2])
    assert axes.get_ylabel() == "loss minus x"
    assert "minus x. The lines: none, 3.1 at 128, 3 at 256, 4.2 at 512; yarn" in picture.alt
    assert picture.data["losses"] == LOSSES
    assert picture.svg(dark=True) != picture.svg()


def test_changes_at_shifted_positions_have_a_panel_of_their_own():
    changes = {"none": [0.0, 1e-6], "float32": [1e-3, 3.0]}
    picture = figures.loss_by_context(
        [128, 256], {"none": [3.0, 4.0]}, offsets=[64, 128], changes=changes
    )
    _, axes = picture.figure().axes
    none, other = axes.lines
    assert list(none.get_ydata()) == [1e-8, 1e-6]  # a logarithmic axis has no 0
    assert list(other.get_ydata()) == [1e-3, 3.0]
    low, high = axes.get_ylim()
    assert low <= 1e-8
    assert high > 3
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["float32"]
    assert picture.alt.endswith("if positions move by up to 128: none, 1e-06; float32, 3.")
