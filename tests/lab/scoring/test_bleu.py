"""Scores against sacrebleu itself.

These fail when a score, a signature or a statistic differs from sacrebleu's, or when length bins
lose or double a sentence.
"""

import itertools
import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentences import WORDS, spoilt, text

from ropewalk.lab.scoring.bleu import (
    assign_bins,
    bleu_from_statistics,
    bleu_statistics,
    brevity_penalty,
    length_bins,
    score,
    sentence_scores,
    signatures,
    whole_statistics,
)

sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra 'lab'")

sentences = st.lists(st.sampled_from([*WORDS, WORDS[0].upper()]), max_size=9).map(" ".join)
corpora = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(sentences, min_size=n, max_size=n)] * 2)
)


@settings(max_examples=40)
@given(corpus=corpora, lowercase=st.booleans())
def test_scores_and_statistics_are_those_of_sacrebleu(corpus, lowercase):
    hypotheses, references = corpus
    found = score(hypotheses, references, references, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=lowercase)
    assert found.bleu == bleu.score
    statistics = bleu_statistics(hypotheses, references, lowercase=lowercase)[0]
    assert torch.equal(found.statistics, statistics)
    assert statistics.dtype == torch.float64
    total = statistics.sum(0)
    assert total.tolist() == [bleu.sys_len, bleu.ref_len, *bleu.counts, *bleu.totals]
    if bleu.sys_len:
        assert brevity_penalty(total).item() == pytest.approx(bleu.bp)
    lowered = [[t.lower() if lowercase else t for t in texts] for texts in corpus]
    assert found.chrf == sacrebleu.corpus_chrf(lowered[0], [lowered[1]]).score
    for value, hypothesis, reference in zip(
        found.sentence_bleu, hypotheses, references, strict=True
    ):
        expected = sacrebleu.sentence_bleu(hypothesis, [reference], lowercase=lowercase)
        assert value == expected.score
    # What results store of a sentence: two lengths and four numbers of matches.
    length, reference_length, *matches = statistics.int().t().tolist()[:6]
    whole = whole_statistics(length, reference_length, matches)
    assert whole.dtype == torch.float64
    assert torch.equal(whole, statistics)
    assert sentence_scores(length, reference_length, matches) == pytest.approx(found.sentence_bleu)


counts = st.sampled_from([0, 0, 1, 2, 7, 40])  # often no match


@given(
    totals=st.lists(counts, min_size=4, max_size=4),
    matched=st.lists(counts, min_size=4, max_size=4),
    reference=st.integers(1, 60),
)
def test_any_statistics_score_as_in_sacrebleu(totals, matched, reference):
    """Orders without a match, orders without an n-gram, nothing at all, too short, too long."""
    totals = sorted(totals, reverse=True)
    matched = [min(match, total) for match, total in zip(matched, totals, strict=True)]
    expected = sacrebleu.BLEU.compute_bleu(
        list(matched), list(totals), totals[0], reference, smooth_method="exp"
    )
    row = torch.tensor([totals[0], reference, *matched, *totals], dtype=torch.float64)
    assert bleu_from_statistics(row).item() == pytest.approx(expected.score, abs=1e-9)
    others = torch.tensor([[1] * 10, [0] * 10, [5, 5, 0, 0, 0, 0, 5, 4, 3, 2]])
    several = bleu_from_statistics(torch.stack([row, *others]))
    assert several.tolist() == pytest.approx([expected.score, 100, 0, 0], abs=1e-9)


def test_two_orders_without_a_match_are_smoothed_in_turn():
    """As 1 / 2 and 1 / 4 of a match."""
    row = torch.tensor([5.0, 5, 4, 2, 0, 0, 5, 4, 3, 2])
    expected = 100 * (4 / 5 * 2 / 4 * 0.5 / 3 * 0.25 / 2) ** 0.25
    assert bleu_from_statistics(row).item() == pytest.approx(expected)


def test_every_hypothesis_needs_its_reference():
    """Fails if a sentence without its reference is left out in silence."""
    with pytest.raises(ValueError, match="zip"):
        bleu_statistics(["one", "two"], ["one"])
    for rows in (
        ([1, 1], [1], [[1]] * 4),
        ([1], [1], [[1, 1]] * 4),
        ([1], [1], [[1], [1], [1], [1, 1]]),
    ):
        with pytest.raises(ValueError, match="zip"):
            sentence_scores(*rows)


def test_scores_are_those_of_the_sacrebleu_command(tmp_path):
    references = text(60)
    hypotheses = spoilt(references, 0.3, seed=1)
    for name, lines in [("references", references), ("hypotheses", hypotheses)]:
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["-i", "hypotheses", "-m", "bleu", "chrf", "-w", "8", "-lc", "--chrf-lowercase"]
    output = subprocess.run(
        [sys.executable, "-m", "sacrebleu", "references", *options],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = json.loads(output)
    found = score(hypotheses, references, references, lowercase=True)
    assert [found.bleu, found.chrf] == pytest.approx([row["score"] for row in rows], abs=1e-7)
    assert list(signatures(lowercase=True).values()) == [row["signature"] for row in rows]


def test_signatures_tell_the_case():
    mixed, folded = signatures(), signatures(lowercase=True)
    version = f"version:{sacrebleu.__version__}"
    assert folded == {
        "bleu": f"nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|{version}",
        "chrf": f"nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|{version}",
    }
    assert mixed == {name: value.replace("case:lc", "case:mixed") for name, value in folded.items()}


def test_bleu_by_length_is_the_corpus_bleu_of_each_bin():
    references = text(80)
    hypotheses = spoilt(references, 0.2, seed=2)
    bins = length_bins(references)
    places = assign_bins(references, [lengths["to"] for lengths in bins])
    by_length = score(hypotheses, references, references).by_length
    assert len(by_length) == len(bins)
    assert len(score(hypotheses, references, references, bins=2).by_length) == 2
    for place, found in enumerate(by_length):
        chosen = [i for i, at in enumerate(places) if at == place]
        ours, theirs = ([texts[i] for i in chosen] for texts in (hypotheses, references))
        assert found == pytest.approx(sacrebleu.corpus_bleu(ours, [theirs]).score)


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    count=st.integers(1, 7),
)
def test_length_bins_touch_and_hold_every_sentence_once(lengths, count):
    lines = [" ".join(["w"] * length) for length in lengths]
    bins = length_bins(lines, count)
    places = assign_bins(lines, [lengths["to"] for lengths in bins])
    assert 1 <= len(bins) <= count
    assert bins[0]["from"] == min(lengths)
    assert bins[-1]["to"] == max(lengths)
    assert all(b["from"] == a["to"] + 1 for a, b in itertools.pairwise(bins))
    assert [row["sentences"] for row in bins] == [places.count(i) for i in range(len(bins))]
    assert all(row["sentences"] > 0 for row in bins)
    for length, place in zip(lengths, places, strict=True):
        assert bins[place]["from"] <= length <= bins[place]["to"]


def test_length_bins_are_quintiles():
    assert length_bins(["w " * n for n in range(1, 11)]) == [
        {"from": low, "to": low + 1, "sentences": 2} for low in (1, 3, 5, 7, 9)
    ]
