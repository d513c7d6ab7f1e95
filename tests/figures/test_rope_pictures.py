"""Pictures of the rotation: drawn numbers are those of the rope.

These fail if a hand points to a wrong angle, a path leaves the circle, or a table is drawn with
other numbers than it has.
"""

import math

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, figures

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

SPEC = RotarySpec(head_dim=8, theta=100.0)


def test_hands_point_where_the_rope_rotates_them():
    picture = figures.pair_planes(SPEC.inverse_frequencies(), range(7))
    cos, sin = RotaryEmbedding(SPEC).tables(torch.arange(7))
    dials = picture.figure().axes
    assert len(dials) == 4
    for pair, axes in enumerate(dials):
        hands = axes.lines[1:]  # the first line is the circle
        ends = sorted((line.get_xdata()[1], line.get_ydata()[1]) for line in hands)
        wanted = sorted(zip(cos[:, pair].tolist(), sin[:, pair].tolist(), strict=True))
        assert ends == [pytest.approx(each, abs=1e-6) for each in wanted]
    assert "pair 0 makes 0.955 turns and pair 3 makes 0.0302" in picture.alt


def test_labels_of_near_hands_are_left_out():
    axes = figures.pair_planes([0.1], range(7)).figure().axes[0]
    labels = {text.get_text() for text in axes.texts}
    assert {"0", "6"} <= labels
    assert len(labels) < 7


def test_a_corkscrew_goes_round_once_per_wavelength():
    picture = figures.corkscrew([math.pi / 4, 0.0], range(9))
    turning, still = picture.data["paths"]
    assert turning[2] == pytest.approx([0, 1])
    assert turning[8] == pytest.approx([1, 0])
    assert still == [[1.0, 0.0]] * 9
    assert "1 turns at 0.785 rad and 0 turns at 0 rad per position" in picture.alt
    dots = [line for line in picture.figure().axes[0].lines if line.get_marker() == "o"]
    heights = [y - 0.35 * x for (x, _), y in zip(turning, dots[0].get_ydata(), strict=True)]
    assert heights == pytest.approx([sin for _, sin in turning])


def test_tables_are_what_was_given():
    cos, sin = RotaryEmbedding(SPEC).tables(torch.arange(0, 30, 3))
    picture = figures.cos_sin_tables(cos, sin, positions=range(0, 30, 3))
    images = [axes.images[0] for axes in picture.figure().axes if axes.images]
    assert [image.get_array().tolist() for image in images] == [cos.tolist(), sin.tolist()]
    assert images[0].get_extent() == [-0.5, 3.5, 28.5, -1.5]
    still = sum(bool((column > 0).all()) for column in cos.T)
    assert f"{still} of 4 columns of cos never change their sign" in picture.alt


@pytest.mark.parametrize("positions", [[-2, -1], [-2, -1, 0], [1e6, 1e6 + 0.1, 1e6 + 0.2]])
def test_positions_that_are_evenly_spaced_are_accepted(positions):
    """Fails if negative positions, or rounded steps, count as uneven."""
    table = [[1.0]] * len(positions)
    assert figures.cos_sin_tables(table, table, positions).data["positions"] == positions
