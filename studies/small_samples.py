"""How often a few sentences show, by chance alone, a BLEU gap that was once reported.

`python studies/small_samples.py results/multi30k-cpu` reads a translation run's results.json,
which has each sentence's BLEU statistics, draws five sentences many times, and writes
results/small-samples with a README made of the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from common import GENERATED, RESULTS, markdown_table, study_one_run
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.results import SplitScores, read_results
from ropewalk.lab.scoring.bleu import ORDERS, bleu_from_statistics, whole_statistics
from ropewalk.machine import commit

FOLDER = RESULTS / "small-samples"
SENTENCES = 5
GAP = 8.01  # % of BLEU that a report of five sentences claimed for rotary over sinusoidal
SAMPLES = 20_000


def bleu_together(statistics: Tensor) -> Tensor:
    """Return corpus BLEU of samples, statistics (..., N, 10) -> (...)."""
    return bleu_from_statistics(statistics.sum(-2))


def mean_sentence_bleu(statistics: Tensor) -> Tensor:
    """Return the mean over N of each sentence's own BLEU, statistics (..., N, 10) -> (...)."""
    return sentence_bleu(statistics).mean(-1)


#: Scores of a sample: key in results.json -> (title, function).
SCORES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "together": ("BLEU of the {n} together", bleu_together),
    "mean": ("Mean of the BLEU of each of the {n} sentences, as in the report", mean_sentence_bleu),
}


def sentence_bleu(statistics: Tensor) -> Tensor:
    """Return each sentence's BLEU, 0 to 100, statistics (..., 10) -> (...).

    Equal to sacrebleu's with effective order: orders without n-grams in the hypothesis do not
    count. Smoothed like corpus BLEU.
    """
    length, reference = statistics[..., 0], statistics[..., 1]
    matches, totals = statistics[..., 2 : 2 + ORDERS], statistics[..., 2 + ORDERS :]
    counted = totals > 0
    missing = counted & (matches == 0)
    smoothed = torch.where(missing, 0.5 ** missing.cumsum(-1), matches)
    logs = torch.where(counted, (smoothed / totals.clamp(min=1)).log(), 0.0).sum(-1)
    log_penalty = (1 - reference / length.clamp(min=1)).clamp(max=0)
    score = 100 * (logs / counted.sum(-1).clamp(min=1) + log_penalty).exp()
    return torch.where((matches > 0).any(-1), score, 0.0)


def gaps(
    first: Tensor,
    other: Tensor,
    score: Callable[[Tensor], Tensor] = bleu_together,
    *,
    sentences: int = SENTENCES,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Tensor:
    """Return by how many % `other`'s score is above `first`'s in each draw of few sentences (M,).

    `first` and `other` are statistics (N, 10) of the same sentences. Each draw takes `sentences` of
    them without replacement, the same for both. The gap is infinite if only `first` scores 0, and 0
    if both do.

    Raises:
        ValueError: if there are fewer sentences than a draw takes.
    """
    if len(first) != len(other) or len(first) < sentences:
        raise ValueError(
            f"first and other must have the same sentences, at least {sentences}, got {len(first)} "
            f"and {len(other)}"
        )
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(samples, len(first), generator=generator)
    drawn = keys.topk(sentences, dim=1).indices
    a, b = (score(system[drawn]) for system in (first, other))
    ratio = torch.where(a == b, 1.0, b / a)
    return (ratio - 1) * 100


def chances(
    systems: Mapping[str, Sequence[Tensor]],
    score: Callable[[Tensor], Tensor] = bleu_together,
    *,
    sentences: int = SENTENCES,
    gap: float = GAP,
) -> dict[str, Any]:
    """Return how often few sentences show a gap of at least `gap` %, with and without a difference.

    `systems` maps encodings to statistics (N, 10) of each seed; the others are compared with the
    first encoding. "alike": each encoding compared with itself, trained with another seed, in
    both orders, over all encodings. "apart": each other encoding compared with the first, all
    pairs of seeds. "of_all": each encoding's mean score on all N sentences.
    """
    names = list(systems)
    alike = [
        gaps(a, b, score, sentences=sentences, seed=number)
        for number, (a, b) in enumerate(
            pair for runs in systems.values() for pair in combinations(runs, 2)
        )
    ]
    mirrored = [((100 / (gap_ / 100 + 1)) - 100) for gap_ in alike]
    apart = {
        name: torch.cat(
            [
                gaps(a, b, score, sentences=sentences, seed=number)
                for number, (a, b) in enumerate(
                    (a, b) for a in systems[names[0]] for b in systems[name]
                )
            ]
        )
        for name in names[1:]
    }
    return {
        "of_all": {
            name: round(sum(score(run).item() for run in runs) / len(runs), 5)
            for name, runs in systems.items()
        },
        "alike": _shares(torch.cat([*alike, *mirrored]), gap) if alike else None,
        "apart": {name: _shares(found, gap) for name, found in apart.items()},
    }


def _shares(found: Tensor, gap: float) -> dict[str, float]:
    """Return how often a gap is at least `gap` or at most `-gap`, and the middle 90 %."""
    finite = found.nan_to_num(posinf=1e6)
    low, high = torch.quantile(_thinned(finite), torch.tensor([0.05, 0.95]).double()).tolist()
    return {
        "above": round((found >= gap).double().mean().item(), 4),
        "below": round((found <= -gap).double().mean().item(), 4),
        "low": round(low, 1),
        "high": round(high, 1),
    }


def _thinned(values: Tensor) -> Tensor:
    """Return evenly spaced values if there are more than torch.quantile can sort (2^24)."""
    return values[:: 1 + len(values) // 2**23]


def statistics_of(scores: SplitScores) -> Tensor:
    """Return the BLEU statistics (N, 10) that results store for one cell and split."""
    assert scores.statistics is not None
    return whole_statistics(**scores.statistics)


def study_run(folder: Path, split: str | None) -> Facts:
    """Measure the chances in a run's results."""
    results = read_results(folder)
    split = split or results.splits[0]
    systems = {
        row.name: [statistics_of(cell.scores[split]) for cell in row.cells]
        for row in results.encodings
    }
    return {
        "asked": results.command,
        "commit": commit(),
        "split": split,
        "seeds": [cell.seed for cell in results.encodings[0].cells],
        "first": results.encodings[0].name,
        "sentences": SENTENCES,
        "gap_percent": GAP,
        "draws_a_pair": SAMPLES,
        "scores": {key: chances(systems, score) for key, (_, score) in SCORES.items()},
    }


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    gap, n, first = results["gap_percent"], results["sentences"], results["first"]
    parts = [
        f"# What {n} sentences can show",
        GENERATED,
        f"A report claimed +{gap} % BLEU for rotary, from {n} sentences. Here {n} sentences of "
        f"{results['split']} are drawn {results['draws_a_pair']:,} times for each pair of models, "
        f"and their scores are compared. Pairs are two seeds of one encoding, in both orders, or a "
        f"model and one of `{first}` (seeds {', '.join(map(str, results['seeds']))}). Shares are "
        f"means of pairs, which differ.",
    ]
    head = ["", "all sentences", f"at least +{gap} %", f"at most −{gap} %", "middle 90 %"]
    for key, (words, _) in SCORES.items():
        held = results["scores"][key]
        alike = held["alike"]
        rows = []
        if alike is not None:
            rows.append(_row("an encoding and itself, another seed", None, alike))
        for name, found in held["apart"].items():
            whole = (held["of_all"][name] / held["of_all"][first] - 1) * 100
            rows.append(_row(f"`{name}` and `{first}`", whole, found))
        parts += [f"## {words.format(n=n)}", markdown_table(head, rows)]
        if alike is not None:
            parts.append(
                f"So if two models differ only in their seed, the first is at least {gap} % better "
                f"on {n} sentences in {alike['above']:.0%} of draws (the mean of all such pairs), "
                f"and at least {gap} % worse in {alike['below']:.0%}. Such a gap alone is hardly "
                f"evidence for an encoding."
            )
    parts.append(f"```sh\n{results['asked']}\n{results['command']}\n```")
    return "\n\n".join(parts) + "\n"


def _row(name: str, whole: float | None, found: Facts) -> list[str]:
    return [
        name,
        "–" if whole is None else f"{format_number(whole, 1, signed=True)} %",
        f"{found['above']:.1%}",
        f"{found['below']:.1%}",
        " to ".join(format_number(found[end], 0, signed=True) for end in ("low", "high")) + " %",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Study a run and write the results folder."""
    study_one_run(__doc__, study_run, readme, FOLDER, arguments)


if __name__ == "__main__":
    main()
