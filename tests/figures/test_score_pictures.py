"""Pictures of scores and of bars: drawn numbers are the given ones, and the words say them."""

import pytest

from ropewalk import figures
from ropewalk.figures.drawing import DARK, LIGHT, style
from ropewalk.figures.score_pictures import Bar, bars

matplotlib = pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

ROWS = [Bar("ours", 1.25, (1.0, 1.5), "3 ms", 0), Bar("theirs", 5.0, (4.5, 6.0), "12 ms", 1)]
OUTCOMES = {
    "sinusoidal": figures.Outcome((36.5, 37.9), 37.2),
    "rotary": figures.Outcome((39.0, None), None, (2.4, 1.1, 3.7)),
}


def test_an_outcome_is_what_was_given():
    picture = figures.score_by_encoding(OUTCOMES, "BLEU", "chrF")
    scores, difference = picture.figure().axes
    assert [list(line.get_xdata()) for line in scores.lines] == [[36.5, 37.9], [37.2], [39.0]]
    bar = difference.containers[0]
    assert bar.lines[0].get_xdata() == [2.4]
    ends = bar.lines[2][0].get_segments()[0]
    assert ends.tolist() == [pytest.approx([1.1, 1]), pytest.approx([3.7, 1])]
    assert [label.get_text() for label in scores.get_yticklabels()] == ["sinusoidal", "rotary"]
    assert difference.get_xlabel() == "difference in chrF from sinusoidal,\n95 % interval"
    assert picture.data == {
        "values": {"sinusoidal": [36.5, 37.9], "rotary": [39.0, None]},
        "means": {"sinusoidal": 37.2, "rotary": None},
        "differences": {"rotary": [2.4, 1.1, 3.7]},
    }
    assert picture.alt == (
        "BLEU by encoding. Mean and range of seeds: sinusoidal, 37.2 (36.5 to 37.9); rotary, "
        "no mean (39). Difference in chrF from sinusoidal, 95 % interval: rotary, 2.4 (1.1 to 3.7)."
    )


def test_without_differences_there_is_one_panel():
    picture = figures.score_by_encoding(
        {"a": OUTCOMES["sinusoidal"], "b": figures.Outcome((), None)}
    )
    assert len(picture.figure().axes) == 1
    assert picture.alt.endswith("; b, no score.")


def test_scores_by_length_are_what_was_given():
    scores = {"none": [[30.0, 20.0], [32.0, 26.0]], "_a$": [[33.0, None], [34.0, 31.0]], "c": []}
    picture = figures.score_by_length(["1–5", "6"], scores)
    figure = picture.figure()
    (axes,) = figure.axes
    drawn = [list(line.get_ydata()) for line in axes.lines]
    assert drawn[:4] == [
        [31.0, 23.0],
        [30.0, 20.0],
        [32.0, 26.0],
        [33.5, pytest.approx(float("nan"), nan_ok=True)],
    ]
    assert [line.get_color() for line in axes.lines[:4]] == [style(0).color] * 3 + [style(1).color]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1–5", "6"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["none", " _a\\$", "c"]
    assert picture.data["means"] == {"none": [31.0, 23.0], "_a$": [33.5, None], "c": [None, None]}
    assert picture.data["scores"] == scores
    assert picture.alt == (
        "BLEU by words in the source sentence, mean of seeds. The lines: none, 31 at 1–5, 23 at 6; "
        "_a$, 33.5 at 1–5; c, no mean."
    )


def test_an_axis_is_logarithmic_if_scores_differ_enough():
    def scale_of(most):
        scores = {"a": [[1.0, most]]}
        picture = figures.score_by_length(["x1", "x2"], scores, "tokens", "loss", logarithmic=True)
        return picture.figure().axes[0].get_yscale()

    assert (scale_of(3.9), scale_of(4.0)) == ("linear", "log")


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
