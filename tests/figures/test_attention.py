"""Pictures of attention: every weight is drawn at its place, on one scale."""

import numpy
import pytest

from ropewalk import figures
from ropewalk.figures.drawing import DARK, LIGHT

matplotlib = pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

WEIGHTS, OTHER = [[0.2, 0.8], [1.0, 0.0]], [[0.5, 0.5], [0.1, 0.9]]


@pytest.mark.parametrize(("dark", "scheme"), [(False, LIGHT), (True, DARK)])
def test_maps_are_what_was_given(dark, scheme):
    maps = {
        "none": [[WEIGHTS, OTHER], [OTHER, OTHER]],
        "rotary": [[OTHER, WEIGHTS], [OTHER, WEIGHTS]],
    }
    picture = figures.attention_maps(maps)
    figure = picture.figure(dark=dark)
    blocks = [axes.images[0] for axes in figure.axes if axes.images]
    for block, stack in zip(blocks, maps.values(), strict=True):
        drawn = block.get_array().filled(-1)
        for layer, heads in enumerate(stack):
            for head, weights in enumerate(heads):
                rows, columns = slice(3 * layer, 3 * layer + 2), slice(3 * head, 3 * head + 2)
                assert drawn[rows, columns].tolist() == weights
        assert (drawn[2] == -1).all()  # the lines between maps
        assert (drawn[:, 2] == -1).all()
        assert (block.norm.vmin, block.norm.vmax, block.norm.gamma) == (0, 1, 0.5)
        ends = [matplotlib.colors.to_hex(block.cmap(end)) for end in (0.0, 1.0)]
        assert ends == [scheme.page, scheme.above.lower()]
        assert matplotlib.colors.to_hex(block.cmap(numpy.nan)) == scheme.faint
    assert picture.data["weights"] == maps
    assert picture.alt == (
        "Attention weights of 2 layers by 2 heads for each encoding. Largest weight "
        "of each query, mean over all queries and heads: none, 0.75; rotary, 0.8."
    )


def test_many_encodings_are_in_rows_and_long_names_in_lines():
    names = [f"rotary(rule=proportional,fraction=0.{n})" for n in range(10, 17)]
    picture = figures.attention_maps({name: [[WEIGHTS] * 4] for name in names})
    figure = picture.figure()
    assert figure.get_figwidth() < 10
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.images]
    assert titles[0] == "rotary(rule=proportional,\nfraction=0.10)"
    assert len(titles) == 7


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ([[WEIGHTS], [WEIGHTS, OTHER]], r"maps\['a'\] must have layers of as many heads each"),
        ([[WEIGHTS, [[1.0]]]], r"all of the same size, got \[2\] heads and sizes"),
        ([], r"maps\['a'\] must have layers"),
        ([[[1.0]]], r"maps\['a'\]\[0\]\[0\] must be rows of numbers"),
    ],
)
def test_wrong_maps_are_refused(maps, message):
    with pytest.raises(ValueError, match=message):
        figures.attention_maps({"a": maps})
