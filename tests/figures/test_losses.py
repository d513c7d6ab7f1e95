"""Pictures of losses: what is drawn are the numbers, with the words for them.

These fail if a line or a bar is drawn elsewhere than its number, or if rounding looks like a
change.
"""

import pytest

from ropewalk import figures

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

LOSSES = {"none": [3.1, 3.0, 4.2], "yarn": [3.15, 3.05, 2.9]}


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"contexts": [256, 128]}, "contexts must increase"),
        ({"contexts": [0, 128]}, "contexts must be above 0"),
        ({"losses": {}}, "losses must have at least one entry"),
        ({"losses": {"a": [1.0]}}, r"losses\['a'\] must have one number for each of the 2"),
        ({"halves": {"b": [0.1, 0.1]}}, "halves must have names of losses, got 'b'"),
        ({"halves": {"a": [0.1, -0.1]}}, r"halves\['a'\] must not be negative, got -0.1"),
        ({"original": -1}, "original must be"),
        ({"offsets": [1, 2]}, "offsets and changes must be given together"),
    ],
)
def test_wrong_arguments_are_refused(more, message):
    given = {"contexts": [128, 256], "losses": {"a": [3.0, 4.0]}, **more}
    with pytest.raises(ValueError, match=message):
        figures.loss_by_context(given.pop("contexts"), given.pop("losses"), **given)
