"""What a trained model does with positions, against models whose answer is known.

These fail if distance counts the wrong way round, or if a position is read off rows that the map
was fitted on.
"""

import pytest
import torch
from scripts import load_scripts

from ropewalk.encodings import StackShape, build
from ropewalk.model import Attention

(anatomy,) = load_scripts("studies", "anatomy")
position_left, record_rotations = anatomy.position_left, anatomy.record_rotations
score_by_distance = anatomy.score_by_distance


def test_score_by_distance_is_the_mean_over_a_plain_loop():
    """Fails if distance counts from the key, or means mix distances or heads."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
    found = score_by_distance(q, k, 0.5)
    for head in range(3):
        for d in range(6):
            scores = [
                0.5 * float(q[b, head, i] @ k[b, head, i - d])
                for b in range(2)
                for i in range(d, 6)
            ]
            assert float(found[head, d]) == pytest.approx(sum(scores) / len(scores), abs=1e-6)


def test_rotated_copies_score_by_distance_alone():
    """Fails if what is seen is not what the softmax gets: equal vectors, turned, score cos sums."""
    shape = StackShape(1, heads=2, kv_heads=2, head_dim=8, width=16, causal=True)
    site = build("rotary(theta=100)", shape).for_layer(0)
    attention = Attention(16, 2, encoding=site)
    with record_rotations(attention) as seen, torch.no_grad():
        attention(torch.ones(1, 7, 16), causal=True)
    (only,) = seen
    assert torch.equal(only.q[:, :, 0], only.q[:, :, 5])  # as projected: positions unknown
    scores = only.turned_q @ only.turned_k.mT
    for d in range(7):
        diagonal = scores.diagonal(-d, -2, -1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal))
    assert "rotate" not in vars(site)  # nothing stays behind


def test_a_position_that_is_there_is_read_and_one_that_is_not_is_not():
    """Fails if the map sees the rows it is judged on: noise would then look like a position."""
    torch.manual_seed(0)
    noise = torch.randn(8, 50, 30)
    assert position_left(noise) < 0.05
    direction = torch.randn(30)
    placed = noise + torch.arange(50)[:, None] * direction
    assert position_left(placed) > 0.99
    with pytest.raises(ValueError, match="at least 2 rows"):
        position_left(noise[:1])
