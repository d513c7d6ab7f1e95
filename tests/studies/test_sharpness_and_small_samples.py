"""Entropy of attention over a split, and what few sentences show.

These fail if padding or what lies ahead counts as attended to, if a query without a choice counts,
or if chance is measured on sentences that differ between two systems.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_scripts

from ropewalk.lab.batches import EncodedSplit
from ropewalk.lab.config import make_config
from ropewalk.lab.scoring.bleu import bleu_statistics
from ropewalk.lab.train import build_model

entropy, small_samples = load_scripts("studies", "entropy", "small_samples")
attention_entropy, chances, gaps = (
    entropy.attention_entropy,
    small_samples.chances,
    small_samples.gaps,
)

SIZES = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "device": "cpu",
}


def model_of(encoding="rotary"):
    return build_model(make_config(settings=SIZES), encoding, 1, 20)


def split_of(lengths):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(4, 20, (n,), generator=generator).tolist() for n in lengths]
    return EncodedSplit(rows, rows[::-1])


class TestEntropy:
    def test_even_attention_has_all_there_is(self):
        """Fails if pad_examples keys, or those ahead, are counted among what a query sees."""
        model = model_of()
        for layer in (*model.encoder, *model.decoder):
            for part in (layer.attention, getattr(layer, "cross", layer.attention)):
                torch.nn.init.zeros_(part.query.weight)
                torch.nn.init.zeros_(part.query.bias)
        split = split_of([3, 7, 5])
        found = attention_entropy(model, split)
        for layers in found.values():
            assert all(layer.share == pytest.approx(1, abs=1e-6) for layer in layers)
        read = [len(row) + 1 for row in split.source]
        even = sum(n * math.log2(n) for n in read) / sum(read)
        assert found["encoder"][0].bits == pytest.approx(even, abs=1e-6)
        steps = [n for row in split.target for n in range(2, len(row) + 2)]
        back = sum(map(math.log2, steps)) / len(steps)
        assert found["decoder"][0].bits == pytest.approx(back, abs=1e-6)

    def test_batches_change_nothing(self):
        """Fails if a sentence's entropy depends on what it is pad_examples beside."""
        model, split = model_of(), split_of([2, 9, 4, 6])
        whole = attention_entropy(model, split)
        alone = attention_entropy(model, split, tokens=1)
        assert [len(whole[kind]) for kind in whole] == [2, 1, 1]
        for kind, layers in whole.items():
            for a, b in zip(layers, alone[kind], strict=True):
                assert a.bits == pytest.approx(b.bits, abs=1e-5)
                assert 0 < a.share < 1


TEXTS = ["the red cat sat on the mat", "a dog runs in the park", "two men play chess outside"] * 4
WORSE = [text.replace("the", "one", 1).replace("park", "yard") for text in TEXTS]


class TestFew:
    @given(seed=st.integers(0, 50), sentences=st.integers(1, 6))
    def test_a_system_never_differs_from_itself(self, seed, sentences):
        """Fails if the two systems are scored on different sentences."""
        statistics = bleu_statistics(WORSE, TEXTS)[0]
        found = gaps(statistics, statistics, sentences=sentences, draws=50, seed=seed)
        assert torch.equal(found, torch.zeros(50, dtype=found.dtype))

    def test_all_sentences_at_once_give_the_corpus_gap(self):
        """Fails if sentences are drawn twice, or scores averaged instead of statistics summed."""
        a, b = bleu_statistics(WORSE, TEXTS)[0], bleu_statistics(TEXTS, TEXTS)[0]
        found = gaps(a, b, sentences=len(TEXTS), draws=3)
        from sacrebleu.metrics.bleu import BLEU

        expected = 100 / BLEU().corpus_score(WORSE, [TEXTS]).score * 100 - 100
        assert found.tolist() == pytest.approx([expected] * 3)

    def test_chances_tell_alike_from_apart(self):
        """Fails if an encoding's own seeds are taken for a difference, or the sign is turned."""
        a, b = bleu_statistics(WORSE, TEXTS)[0], bleu_statistics(TEXTS, TEXTS)[0]
        found = chances({"first": [a, a], "other": [b]}, gap=1.0)
        assert found["alike"]["above"] == found["alike"]["below"] == 0
        assert found["apart"]["other"]["above"] > 0.9
        assert found["apart"]["other"]["below"] == 0

    def test_too_few_sentences_are_refused(self):
        """Fails if fewer sentences than asked for are scored in silence."""
        statistics = bleu_statistics(TEXTS[:3], TEXTS[:3])[0]
        with pytest.raises(ValueError, match="at least 5, got 3 and 3"):
            gaps(statistics, statistics)
