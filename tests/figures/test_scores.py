"""Pictures of scores: drawn numbers are those of rotated vectors.

These fail if a score has the wrong sign of the distance, if the decay is not that of RoFormer, or
if two words that move together are drawn with other scores than they have.
"""

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, figures

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

SPEC = RotarySpec(head_dim=16, pairing="interleaved")
FREQUENCIES = SPEC.inverse_frequencies()


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pair": 8}, "pair must be below 8, the number of pairs, got 8"),
        ({"q": [[1.0, 0.0]] * 8}, "q and k must be given together, got only q"),
        ({"q": [[1.0]] * 8, "k": [[1.0]] * 8}, r"q must have the shape \(8, 2\).* got \(8, 1\)"),
        ({"measured": {"m": [1.0]}}, r"measured\['m'\] must have one number for each of the 2"),
    ],
)
def test_wrong_arguments_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        figures.score_by_distance(FREQUENCIES, [0, 1], **more)


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


@pytest.mark.parametrize(
    ("starts", "gap", "scores", "message"),
    [
        (range(25), 1, [0.0] * 25, "starts must have at most 24 numbers.* got 25"),
        ([0, 1], 0, [0.0] * 2, "gap must be at least 1, got 0"),
        ([0, 1], 1, [0.0], r"scores\['a'\] must have one number for each of the 2 starts, got 1"),
    ],
)
def test_wrong_sentences_are_refused(starts, gap, scores, message):
    with pytest.raises(ValueError, match=message):
        figures.moved_together(starts, gap, {"a": scores})
