"""Pictures of losses: drawn numbers are the given ones, means leave out seeds that diverged."""

import pytest

from ropewalk import figures
from ropewalk.figures.drawing import style

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

ONE, OTHER = figures.Curve(1, (1.0, 2.0), (3.0, 2.5)), figures.Curve(2, (1.0, 2.0), (4.0, 3.0))


@pytest.mark.parametrize("dark", [False, True])
def test_losses_are_what_was_given(dark):
    picture = figures.loss_curves({"a": [ONE]}, {"a": [ONE], "b": [ONE, OTHER]}, "words")
    panels = picture.figure(dark=dark).axes
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


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (figures.Curve(3, (1.0, 2.0), (3.0,)), r"training\['a'\], seed 3: loss must have one numb"),
        (figures.Curve(3, (2.0, 1.0), (3.0, 2.0)), r"training\['a'\], seed 3: x must increase"),
        (figures.Curve(3, (1.0,), (float("nan"),)), "seed 3: loss must be finite, got nan"),
    ],
)
def test_wrong_curves_are_refused(curve, message):
    with pytest.raises(ValueError, match=message):
        figures.loss_curves({"a": [curve]})
