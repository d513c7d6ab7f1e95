"""Beam search compared with simple reference searches.

These fail when the search loses, invents or misranks hypotheses: compared with all possible
sentences if the beam can have them all, and with a beam search without batch or cache; when a
sentence's result depends on its neighbors; and when a search does not stop.
"""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import ropewalk.lab.decoding.beam_search as beam_search_module
from ropewalk.encodings import build_encoder_decoder
from ropewalk.lab.data.batches import source_batch
from ropewalk.lab.decoding.beam_search import Hypothesis, beam_search, best, likeliest
from ropewalk.lab.decoding.translator import most_tokens, translate_ids
from ropewalk.lab.tokens import BOS, EOS
from ropewalk.model import Transformer, TransformerShape, initialize

ENCODINGS = ["rotary", "sinusoidal", "none", "rotary(cross=True)", "learned(max_positions=64)"]

seeds = st.integers(0, 2**32 - 1)
sentences = st.lists(st.lists(st.integers(3, 8), max_size=6), min_size=1, max_size=4)

Prefix = tuple[tuple[int, ...], float]  # words, and the sum of their log-probabilities


class Toy(Transformer):
    """A small model with initial parameters and an adjustable likelihood of the end mark."""

    end = 0.0

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden)
        logits[..., EOS] += self.end
        return logits


def toy(vocabulary: int = 9, encoding: str = "rotary", seed: int = 0, end: float = 0.0) -> Toy:
    shape = TransformerShape(vocabulary, 16, 2, 32, encoder_layers=1, decoder_layers=2)
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Toy(shape, *build_encoder_decoder(encoding, *stacks))
    initialize(model, seed)
    model.end = end
    return model.double().eval()


@torch.no_grad()
def next_words(model: Toy, source: list[int], prefixes: list[tuple[int, ...]]) -> list[list[float]]:
    """Log-probabilities of the next word after each of these prefixes of one length."""
    sources = torch.tensor([[*source, EOS]]).expand(len(prefixes), -1)
    hidden = model(sources, torch.tensor([[BOS, *prefix] for prefix in prefixes]))
    return model.logits(hidden[:, -1]).log_softmax(-1).tolist()


def every_sentence(model: Toy, source: list[int], max_tokens: int) -> list[Hypothesis]:
    """All sentences that end within `max_tokens` tokens or are cut there, likeliest first."""
    live, ended = [((), 0.0)], []
    for _ in range(max_tokens):
        grown = continued(model, source, live)
        ended += [Hypothesis(ids[:-1], p) for ids, p in grown if ids[-1] == EOS]
        live = [(ids, p) for ids, p in grown if ids[-1] != EOS]
    ended += [Hypothesis(ids, p) for ids, p in live]
    return sorted(ended, key=lambda h: -h.log_probability)


def plain_search(model: Toy, source: list[int], beam: int, max_tokens: int) -> list[Hypothesis]:
    """Beam search for one sentence that computes every prefix from scratch."""
    live, ended, length = [((), 0.0)], [], 0
    while len(ended) < beam and length < max_tokens:
        length += 1
        grown = sorted(continued(model, source, live), key=lambda x: -x[1])
        ended += [Hypothesis(ids[:-1], p) for ids, p in grown[:beam] if ids[-1] == EOS]
        live = [(ids, p) for ids, p in grown if ids[-1] != EOS][:beam]
        if length == max_tokens:
            ended += [Hypothesis(ids, p) for ids, p in live]
    return sorted(ended[:beam], key=lambda h: -h.log_probability)


def continued(model: Toy, source: list[int], live: list[Prefix]) -> list[Prefix]:
    words = next_words(model, source, [ids for ids, _ in live])
    return [
        ((*ids, word), total + log_p)
        for (ids, total), row in zip(live, words, strict=True)
        for word, log_p in enumerate(row)
    ]


def search(model: Toy, sources: list[list[int]], beam: int, max_tokens: int) -> list:
    limits = [max_tokens] * len(sources)
    return beam_search(model, *source_batch(sources), beam=beam, max_tokens=limits)


def assert_same(actual: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.ids for h in actual] == [h.ids for h in expected]
    for a, e in zip(actual, expected, strict=True):
        assert a.log_probability == pytest.approx(e.log_probability, abs=1e-4)


@pytest.mark.parametrize(("vocabulary", "max_tokens"), [(4, 3), (6, 3), (9, 2), (5, 1)])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_beam_that_holds_all_finds_every_sentence(encoding, vocabulary, max_tokens):
    model = toy(vocabulary, encoding)
    (found,) = search(model, [[3, 3]], beam=vocabulary**max_tokens, max_tokens=max_tokens)
    assert_same(found, every_sentence(model, [3, 3], max_tokens))
    assert sum(math.exp(h.log_probability) for h in found) == pytest.approx(1, abs=1e-4)


@given(
    sentences,
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from(ENCODINGS),
    st.sampled_from([-2.0, 0.0, 2.0]),
    seeds,
)
@settings(max_examples=12)
@example([[3, 4], [5], []], 1, 7, "rotary", -2.0, 1)
def test_batched_search_on_a_cache_equals_a_plain_one(
    sources, beam, max_tokens, encoding, end, seed
):
    """A beam of one takes the likeliest word each time."""
    model = toy(9, encoding, seed, end)
    for source, found in zip(sources, search(model, sources, beam, max_tokens), strict=True):
        assert_same(found, plain_search(model, source, beam, max_tokens))


@given(
    st.lists(st.lists(st.integers(3, 8), max_size=6), min_size=9, max_size=20),
    st.integers(1, 4),
    st.sampled_from(ENCODINGS),
    st.sampled_from([0.0, 2.0]),
    seeds,
)
@settings(max_examples=6)
def test_ended_sentences_that_stay_in_their_batch_change_nothing(
    sources, beam, encoding, end, seed
):
    """Fails if such a sentence gets more hypotheses, or if it shifts the rows of others."""
    model = toy(9, encoding, seed, end)
    staying = search(model, sources, beam, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_search_module, "SPARE", 10**9)  # each leaves as soon as it has ended
        leaving = search(model, sources, beam, 12)
    for one, other in zip(staying, leaving, strict=True):
        assert_same(one, other)


@given(sentences, st.integers(1, 4), st.sampled_from([20, 2048]), seeds)
@settings(max_examples=4)
def test_translations_come_in_order_whatever_stands_beside_them(sources, beam, tokens, seed):
    model = toy(seed=seed, end=2.0)
    together = translate_ids(model, sources, beam=beam, tokens=tokens)
    assert len(together) == len(sources)
    for source, found in zip(sources, together, strict=True):
        assert_same(found, translate_ids(model, [source], beam=beam)[0])


def test_nothing_gives_nothing():
    assert translate_ids(toy(), [], beam=2) == []


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_never_ends_is_cut(beam):
    found = translate_ids(toy(end=-1e9), [[3], [3, 4, 5]], beam=beam)
    assert [[len(h.ids) for h in hypotheses] for hypotheses in found] == [[14] * beam, [18] * beam]
    assert all(len({h.ids for h in hypotheses}) == beam for hypotheses in found)
    long, short = beam_search(
        toy(end=-1e9), *source_batch([[3], [4]]), beam=beam, max_tokens=[5, 2]
    )
    assert [len(h.ids) for h in (*long, *short)] == [5] * beam + [2] * beam


def test_a_learned_table_cuts_the_search_where_it_ends():
    model = toy(encoding="learned(max_positions=6)", end=-1e9)
    assert [most_tokens(model, n) for n in (1, 100)] == [6, 6]
    assert [len(h.ids) for h in translate_ids(model, [[3, 4]], beam=2)[0]] == [6, 6]
    with pytest.raises(ValueError, match=r"must lie in 0\.\.5, the rows of this learned table"):
        translate_ids(model, [[3] * 6], beam=2)


@pytest.mark.parametrize(("vocabulary", "beam"), [(4, 3), (4, 10), (5, 64)])
def test_a_vocabulary_smaller_than_the_beam_gives_real_hypotheses_alone(vocabulary, beam):
    model = toy(vocabulary)
    for max_tokens in (1, 2, 3):
        (found,) = search(model, [[3]], beam, max_tokens)
        everything = {h.ids: h.log_probability for h in every_sentence(model, [3], max_tokens)}
        assert len(found) == min(beam, len(everything))
        assert len({h.ids for h in found}) == len(found)
        for h in found:
            assert h.log_probability == pytest.approx(everything[h.ids], abs=1e-4)


# The choice among words, and among hypotheses


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([3, 8, 64, 255, 512, 1000, 2048, 2085]),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=20, deadline=None)
def test_the_likeliest_are_the_first_of_all_in_order(sentences, beams, vocabulary, count, seed):
    """Fails if words after the last whole group are left out, or a tiny vocabulary repeats one."""
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


@given(st.lists(st.integers(3, 9), max_size=30), st.floats(-100, -0.01), st.floats(0, 2))
def test_a_score_is_that_of_wu_et_al(ids, log_probability, alpha):
    hypothesis = Hypothesis(tuple(ids), log_probability)
    length = len(ids) + 1  # with its end mark
    penalty = (5 + length) ** alpha / (5 + 1) ** alpha
    assert hypothesis.score(alpha) == pytest.approx(log_probability / penalty)
    assert hypothesis.score(0) == log_probability


def test_a_greater_length_penalty_prefers_longer_sentences():
    short, long = Hypothesis((4, 5), -3.0), Hypothesis((4, 5, 6, 7, 8, 9), -4.0)
    assert best([long, short], 0.0) is short
    assert best([short, long], 1.0) is long


def test_search_is_deterministic_and_leaves_the_model_alone():
    model = toy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = translate_ids(model, [[3, 4], [5]], beam=3)
    assert translate_ids(model, [[3, 4], [5]], beam=3) == first
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
