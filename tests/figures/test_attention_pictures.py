"""Pictures of attention: weights at their places on one scale, and scores of rotated vectors.

These fail if a score has the wrong sign of the distance, if the decay is not that of RoFormer, or
if two words that move together are drawn with other scores than they have.
"""

import numpy
import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, figures
from ropewalk.figures.drawing import DARK, LIGHT

matplotlib = pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

SPEC = RotarySpec(head_dim=16, pairing="interleaved")
FREQUENCIES = SPEC.inverse_frequencies()
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


def test_scores_of_q_and_k_are_those_of_the_rotated_vectors():
    rope = RotaryEmbedding(SPEC)
    torch.manual_seed(1)
    q, k = torch.randn(2, 16)
    picture = figures.score_by_distance(
        FREQUENCIES, range(20), q=q.view(8, 2), k=k.view(8, 2), pair=2, measured={"m": range(20)}
    )
    alone, every, measured = picture.data["scores"].values()
    positions = torch.arange(20)
    turned_q = rope.rotate(q.expand(1, 1, 20, 16), positions)
    turned_k = rope.rotate(k[None, None, None], torch.tensor([0]))  # the query is d positions later
    parts = (turned_q * turned_k).view(20, 8, 2).sum(-1)
    assert every == pytest.approx(parts.sum(-1).tolist(), abs=1e-5)
    assert alone == pytest.approx(parts[:, 2].tolist(), abs=1e-5)
    assert measured == list(range(20))
    lines = picture.figure().axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [alone, every, measured]


def test_the_decay_is_that_of_roformer():
    picture = figures.score_by_distance(FREQUENCIES, range(50))
    alone, every, decay = picture.data["scores"].values()
    distances = torch.arange(50, dtype=torch.float64)
    turns = torch.polar(torch.ones(50, 8, dtype=torch.float64), distances[:, None] * FREQUENCIES)
    sums = turns.cumsum(1).abs().mean(1)
    assert decay == pytest.approx((sums / sums[0]).tolist())
    assert every == pytest.approx(turns.real.mean(1).tolist())
    assert alone == pytest.approx(turns.real[:, 0].tolist())
    assert f"all 8 pairs, 1 at 0, {every[-1]:.3g} at 49" in picture.alt


def test_two_words_move_together():
    scores = {"rotary": [2.0, 2.000001, 2.0], "absolute": [1.0, 3.0, 2.0]}
    picture = figures.moved_together([0, 5, 10], 3, scores, words=("cat", "sat"))
    left, right = picture.figure().axes
    assert [list(line.get_xdata()) for line in right.lines] == list(scores.values())
    assert list(left.lines[-2].get_xdata()) == [0, 5, 10]
    assert list(left.lines[-1].get_xdata()) == [3, 8, 13]
    assert {text.get_text() for text in left.texts} == {"cat", "sat"}
    rounded = figures.moved_together([0, 5], 3, {"rotary": [2.0, 2.000001]})
    low, high = rounded.figure().axes[1].get_xlim()
    assert high - low > 0.1  # errors of rounding do not look like a change
    assert "rotary, 2 at each place, up to rounding; absolute, 1 to 3, a change of 2" in picture.alt
