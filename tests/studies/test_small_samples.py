"""Small samples: these fail if two systems are compared on different sentences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_scripts

from ropewalk.lab.scoring.bleu import bleu_statistics

(small_samples,) = load_scripts("studies", "small_samples")
chances, gaps = small_samples.chances, small_samples.gaps
TEXTS = ["the red cat sat on the mat", "a dog runs in the park", "two men play chess outside"] * 4
WORSE = [text.replace("the", "one", 1).replace("park", "yard") for text in TEXTS]


class TestGaps:
    @given(seed=st.integers(0, 50), sentences=st.integers(1, 6))
    def test_a_system_never_differs_from_itself(self, seed, sentences):
        """Fails if the two systems are scored on different sentences."""
        statistics = bleu_statistics(WORSE, TEXTS)[0]
        found = gaps(statistics, statistics, sentences=sentences, samples=50, seed=seed)
        assert torch.equal(found, torch.zeros(50, dtype=found.dtype))

    def test_all_sentences_at_once_give_the_corpus_gap(self):
        """Fails if sentences are drawn twice, or scores averaged instead of statistics summed."""
        a, b = bleu_statistics(WORSE, TEXTS)[0], bleu_statistics(TEXTS, TEXTS)[0]
        found = gaps(a, b, sentences=len(TEXTS), samples=3)
        from sacrebleu.metrics.bleu import BLEU

        expected = 100 / BLEU().corpus_score(WORSE, [TEXTS]).score * 100 - 100
        assert found.tolist() == pytest.approx([expected] * 3)

    def test_the_mean_of_sentences_is_not_their_bleu_together(self):
        """Fails if the mean of sentence BLEU differs from sacrebleu's sentence scores."""
        (a, of_a), (b, of_b) = bleu_statistics(WORSE, TEXTS), bleu_statistics(TEXTS, TEXTS)
        score = small_samples.mean_sentence_bleu
        found = gaps(a, b, score, sentences=len(TEXTS), samples=3)
        assert found.tolist() == pytest.approx([sum(of_b) / sum(of_a) * 100 - 100] * 3)
        together = gaps(a, b, sentences=len(TEXTS), samples=3)
        assert (found - together).abs().min() > 1

    def test_a_sentence_of_few_words_is_scored_as_sacrebleu_does(self):
        """Fails if orders without an n-gram count, or a score without a match is above 0."""
        hypotheses = ["", "a", "the cat", "a red cat", "zzz yyy", "the red cat sat on a mat", "the"]
        references = ["the red cat sat on the mat"] * len(hypotheses)
        statistics, expected = bleu_statistics(hypotheses, references)
        assert small_samples.sentence_bleu(statistics).tolist() == pytest.approx(expected)

    def test_chances_tell_alike_from_apart(self):
        """Fails if an encoding's own seeds count as a difference, or the sign is inverted."""
        a, b = bleu_statistics(WORSE, TEXTS)[0], bleu_statistics(TEXTS, TEXTS)[0]
        found = chances({"first": [a, a], "other": [b]}, gap=1.0)
        assert found["alike"]["above"] == found["alike"]["below"] == 0
        assert found["apart"]["other"]["above"] > 0.9
        assert found["apart"]["other"]["below"] == 0
        whole = found["of_all"]
        assert whole["other"] == pytest.approx(100)
        assert whole["first"] < 99

    def test_too_few_sentences_are_refused(self):
        """Fails if fewer sentences than requested are scored without an error."""
        statistics = bleu_statistics(TEXTS[:3], TEXTS[:3])[0]
        with pytest.raises(ValueError, match="at least 5, got 3 and 3"):
            gaps(statistics, statistics)
