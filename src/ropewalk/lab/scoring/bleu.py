"""BLEU and chrF by sacrebleu: of a corpus, of single sentences and by sentence length.

Hypotheses and references are detokenized text, one string per sentence, one reference each. Only
sacrebleu lower-cases text (`lowercase=True`), so that the signature shows it.

Axes: N sentences, 10 BLEU statistics (length of the hypothesis, of the reference, matched n-grams
of order 1 to 4, n-grams of order 1 to 4).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from ropewalk.checks import needing

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

LengthBin = TypedDict("LengthBin", {"from": int, "to": int, "sentences": int})

ORDERS = 4


@dataclass(frozen=True)
class Score:
    """The scores of one system on one split; BLEU and chrF from 0 to 100.

    `sentence_bleu` has one value per sentence (effective order); `by_length` is corpus BLEU in each
    bin of `length_bins`. `statistics` are those of the sentences (N, 10).
    """

    bleu: float
    chrf: float
    sentence_bleu: tuple[float, ...]
    by_length: tuple[float, ...]
    statistics: Tensor


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    lowercase: bool = False,
    bins: int = 5,
) -> Score:
    """Return corpus BLEU and chrF, and BLEU of each sentence and of each length bin of the sources.

    The three have the same number of sentences, at least one.
    """
    bleu, chrf = _metrics(lowercase)
    statistics, sentence_bleu = bleu_statistics(hypotheses, references, lowercase=lowercase)
    ends = [lengths["to"] for lengths in length_bins(sources, bins)]
    places = torch.tensor(assign_bins(sources, ends))
    return Score(
        bleu=bleu.corpus_score(hypotheses, [references]).score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        sentence_bleu=tuple(sentence_bleu),
        by_length=tuple(
            bleu_from_statistics(statistics[places == place].sum(0)).item()
            for place in range(int(places.max()) + 1)
        ),
        statistics=statistics,
    )


def signatures(*, lowercase: bool = False) -> dict[str, str]:
    """Return sacrebleu's signatures of "bleu" and "chrf" as `score` computes them."""
    bleu, chrf = _metrics(lowercase, references=[["one reference"]])
    return {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def length_bins(sentences: Sequence[str], bins: int = 5) -> list[LengthBin]:
    """Return ranges of length in words with about equally many sentences each.

    "from" and "to" are both inclusive, ranges are adjacent, and none is empty. Sentences of one
    length stay together, so there may be fewer than `bins` ranges.
    """
    lengths = sorted(_words(sentence) for sentence in sentences)
    upper = sorted({lengths[math.ceil(len(lengths) * k / bins) - 1] for k in range(1, bins + 1)})
    lower = [lengths[0], *(edge + 1 for edge in upper[:-1])]
    return [
        {"from": low, "to": high, "sentences": sum(low <= length <= high for length in lengths)}
        for low, high in zip(lower, upper, strict=True)
    ]


def assign_bins(sentences: Sequence[str], ends: Sequence[int]) -> list[int]:
    """Return the index of each sentence's bin, by its length in words; `ends` are inclusive."""
    return [bisect_left(ends, _words(sentence)) for sentence in sentences]


def bleu_statistics(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> tuple[Tensor, list[float]]:
    """Return BLEU statistics (N, 10), integers in float64, and BLEU of each sentence."""
    bleu, _ = _metrics(lowercase, effective_order=True)
    rows = [
        bleu.sentence_score(hypothesis, [reference])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    statistics = [[row.sys_len, row.ref_len, *row.counts, *row.totals] for row in rows]
    return torch.tensor(statistics, dtype=torch.float64), [row.score for row in rows]


def whole_statistics(
    length: Sequence[int], reference_length: Sequence[int], matches: Sequence[Sequence[int]]
) -> Tensor:
    """Return BLEU statistics (N, 10) from those stored in results; `matches` is (4, N)."""
    kept = torch.tensor([length, reference_length, *matches], dtype=torch.float64)
    # A hypothesis has max(0, length - n + 1) n-grams of order n.
    totals = [(kept[0] - order).clamp(min=0) for order in range(ORDERS)]
    return torch.cat((kept, torch.stack(totals))).t()


def sentence_scores(
    length: Sequence[int], reference_length: Sequence[int], matches: Sequence[Sequence[int]]
) -> list[float]:
    """Return BLEU of each sentence, 0 to 100, from the statistics stored in results.

    Equal to sacrebleu's with effective order: the mean leaves out orders for which the hypothesis
    is too short. `matches` is (4, N).
    """
    rows = zip(length, reference_length, zip(*matches, strict=True), strict=True)
    return [_sentence_score(*row) for row in rows]


def _sentence_score(length: int, reference_length: int, matches: Sequence[int]) -> float:
    if not any(matches):
        return 0.0
    misses, logarithms = 0, []
    for order, matched in enumerate(matches[:length]):
        misses += matched == 0
        precision = 100 * (matched or 0.5**misses) / (length - order)
        logarithms.append(math.log(precision))
    penalty = min(1.0, math.exp(1 - reference_length / length))
    return penalty * math.exp(fmean(logarithms))


def bleu_from_statistics(sums: Tensor) -> Tensor:
    """Return corpus BLEU, 0 to 100, of summed statistics (..., 10) -> (...).

    Equal to sacrebleu's default: brevity penalty, geometric mean of four precisions, exponential
    smoothing (the k-th order without a match counts as 1 / 2^k matches; Chen and Cherry 2014,
    method 3); 0 if nothing matches or some order has no n-gram at all.
    """
    matches, totals = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    missing = matches == 0
    smoothed = torch.where(missing, 0.5 ** missing.cumsum(-1), matches)
    log_precision = (smoothed / totals.clamp(min=1)).log().mean(-1)
    defined = (totals > 0).all(-1) & ~missing.all(-1)
    return torch.where(defined, 100 * (log_precision + _log_brevity(sums)).exp(), 0.0)


def brevity_penalty(sums: Tensor) -> Tensor:
    """Return BLEU's factor for short output, of summed statistics (..., 10) -> (...).

    1 if the output is at least as long as the reference, less if it is shorter. Source: Papineni et
    al. 2002, section 2.2.2.
    """
    return _log_brevity(sums).exp()


def _log_brevity(sums: Tensor) -> Tensor:
    length, reference = sums[..., 0], sums[..., 1]
    return (1 - reference / length.clamp(min=1)).clamp(max=0)


def _metrics(
    lowercase: bool, *, effective_order: bool = False, references: Any = None
) -> tuple[BLEU, CHRF]:
    with needing("a score", ImportError):
        from sacrebleu.metrics.bleu import BLEU  # lazy: only the lab needs it
        from sacrebleu.metrics.chrf import CHRF
    return (
        BLEU(lowercase=lowercase, effective_order=effective_order, references=references),
        CHRF(lowercase=lowercase, references=references),
    )


def _words(sentence: str) -> int:
    return len(sentence.split())
