"""The likeliest continuations are those of sorting all of them.

These fail if a group of words with one of the best is left out, also among the words after the last
whole group, if a score is not that of its beam and word, or if a tiny vocabulary gives words twice.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.decoding.beam_search import likeliest


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([3, 8, 64, 255, 512, 1000, 2048, 2085]),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_they_are_the_first_of_all_in_order(sentences, beams, vocabulary, count, seed):
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(sentences, beams, vocabulary, generator=draw)
    scores = torch.randn(sentences, beams, generator=draw)
    found = likeliest(logits.clone(), scores, count)
    everything = (logits.log_softmax(-1) + scores[..., None]).flatten(1)
    expected = everything.sort(descending=True).values[:, :count]
    wanted = expected.shape[1]
    assert found.scores.shape == (sentences, count)
    torch.testing.assert_close(found.scores[:, :wanted], expected)
    assert (found.scores[:, wanted:] == -torch.inf).all()
    places = (found.parents * vocabulary + found.words)[:, :wanted]
    torch.testing.assert_close(everything.gather(1, places), expected)
    assert all(len(set(row)) == wanted for row in places.tolist())


@pytest.mark.parametrize("possible", [1, 3])
def test_words_of_probability_zero_come_last(possible):
    logits = torch.full((1, 1, 2048), -torch.inf)
    logits[..., 100 : 100 + possible] = 0.0
    found = likeliest(logits, torch.zeros(1, 1), 4)
    assert sorted(found.words[0, :possible].tolist()) == list(range(100, 100 + possible))
    assert (found.scores[0, possible:] == -torch.inf).all()
