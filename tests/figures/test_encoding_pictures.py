"""Pictures of encodings: drawn numbers are those that the encodings add.

These fail if a matrix, a bias or a similarity is drawn with other numbers than it has.
"""

import math

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, figures
from ropewalk.encodings import Placement, StackShape, build

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

SHAPE = StackShape(layers=1, heads=4, kv_heads=4, head_dim=8, width=16, causal=True)


def added(name: str) -> torch.Tensor:
    return build(name, SHAPE).embed(torch.zeros(12, 16), torch.arange(12))


def drawn(picture: figures.Picture) -> list[list[list[float]]]:
    return [axes.images[0].get_array().tolist() for axes in picture.figure().axes if axes.images]


def test_vectors_are_what_encodings_add():
    vectors = {name: added(name) for name in ("integer", "binary", "sinusoidal")}
    picture = figures.position_vectors(vectors)
    assert drawn(picture) == [each.tolist() for each in vectors.values()]
    limits = [axes.images[0].get_clim() for axes in picture.figure().axes if axes.images]
    assert limits[:2] == [(0, 11), (0, 1)]  # shades start at 0, except for negative numbers
    assert limits[2] == (-1, 1)
    assert "integer, 12 positions by 16 columns, 0 to 11" in picture.alt


def test_similarity_is_the_cosine_of_two_vectors():
    cos, sin = RotaryEmbedding(RotarySpec(head_dim=8)).tables(torch.arange(12))
    vectors = {"rotary": torch.cat((cos, sin), dim=-1), "integer": added("integer")}
    picture = figures.position_similarity(vectors)
    angles = torch.outer(torch.arange(12).double(), RotarySpec(head_dim=8).inverse_frequencies())
    wanted = (angles[:, None] - angles).cos().mean(-1)
    assert drawn(picture)[0] == [pytest.approx(each, abs=1e-6) for each in wanted.tolist()]
    assert picture.data["similarity"]["integer"][3][7] == pytest.approx(1)
    assert all(math.isnan(number) for number in picture.data["similarity"]["integer"][0])
    assert "integer, 1 for neighbors, undefined for the first and the last" in picture.alt
    assert len(picture.figure().axes) == 3  # two panels and a scale


def test_five_panels_take_two_rows():
    picture = figures.position_similarity({str(n): [[1.0, n], [1.0, 2.0]] for n in range(5)})
    places = [axes.get_subplotspec() for axes in picture.figure().axes if axes.images]
    assert [(place.rowspan.start, place.colspan.start) for place in places] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1),
    ]  # fmt: skip


def test_biases_are_those_of_the_encodings():
    torch.manual_seed(0)
    at = Placement(queries=torch.tensor([20]), keys=torch.arange(20, -1, -1))
    biases = {n: build(n, SHAPE).for_layer(0).bias(at)[:, 0] for n in ("alibi", "t5", "kerple")}
    picture = figures.bias_by_distance(biases)
    panels = picture.figure().axes
    for axes, bias in zip(panels, biases.values(), strict=False):
        assert [list(line.get_ydata()) for line in axes.lines] == bias.tolist()
        assert list(axes.lines[0].get_xdata()) == list(range(21))
    assert not panels[3].axison
    slopes = biases["alibi"][:, -1]
    assert f"ALiBi, 4 heads: 0 at distance 0, {slopes.min():.3g} to" in picture.alt.replace(
        "alibi", "ALiBi"
    )
    assert [text.get_text() for text in picture.figure().legends[0].texts] == [
        "head 0", "head 1", "head 2", "head 3",
    ]  # fmt: skip


def test_many_heads_have_no_legend():
    figure = figures.bias_by_distance({"a": [[float(h)] * 3 for h in range(9)]}, [0, 1, 2]).figure()
    assert not figure.legends
    assert figure.axes[0].get_title(loc="left") == "a, 9 heads"
