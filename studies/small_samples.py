"""What a handful of sentences shows: how often chance alone makes a gap that was once reported.

``python studies/small_samples.py results/multi30k-cpu`` reads a translation run's results.json,
which holds each sentence's BLEU statistics, draws five sentences many times over, and writes
results/small-samples with a README made of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from common import GENERATED, RESULTS, Facts, markdown_table, study_one_run
from torch import Tensor

from ropewalk.lab.report.formats import format_number
from ropewalk.lab.results import read_results
from ropewalk.lab.scoring.bleu import ORDERS, bleu_from_statistics

FOLDER = RESULTS / "small-samples"
SENTENCES = 5
GAP = 8.01  # % of BLEU that a report of five sentences claimed for rotary over sinusoidal
SAMPLES = 20_000


def gaps(
    first: Tensor,
    other: Tensor,
    *,
    sentences: int = SENTENCES,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Tensor:
    """Give by how many % `other`'s BLEU is above `first`'s on few sentences, draw by draw (M,).

    `first` and `other` are statistics (N, 10) of the same sentences; each draw takes `sentences` of
    them without replacement, the same for both. Infinite where only `first` has no BLEU at all, 0
    where neither has.

    Raises:
        ValueError: there are fewer sentences than a draw takes.
    """
    if len(first) != len(other) or len(first) < sentences:
        raise ValueError(
            f"first and other must hold the same sentences, at least {sentences}, got {len(first)} "
            f"and {len(other)}"
        )
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(samples, len(first), generator=generator)
    drawn = keys.topk(sentences, dim=1).indices
    a, b = (bleu_from_statistics(system[drawn].sum(1)) for system in (first, other))
    ratio = torch.where(a == b, 1.0, b / a)
    return (ratio - 1) * 100


def chances(
    systems: dict[str, Sequence[Tensor]], *, sentences: int = SENTENCES, gap: float = GAP
) -> dict[str, Any]:
    """Say how often few sentences show a gap of at least `gap` %, with and without a difference.

    `systems` holds statistics (N, 10) of each seed, encoding -> seed, the first encoding being what
    the others are held against. "alike": one encoding against itself, trained with another seed,
    in both orders, all encodings together. "apart": each other encoding against the first, all
    pairs of seeds.
    """
    names = list(systems)
    alike = [
        gaps(a, b, sentences=sentences, seed=number)
        for number, (a, b) in enumerate(
            pair for runs in systems.values() for pair in combinations(runs, 2)
        )
    ]
    mirrored = [((100 / (gap_ / 100 + 1)) - 100) for gap_ in alike]
    apart = {
        name: torch.cat(
            [
                gaps(a, b, sentences=sentences, seed=number)
                for number, (a, b) in enumerate(
                    (a, b) for a in systems[names[0]] for b in systems[name]
                )
            ]
        )
        for name in names[1:]
    }
    return {
        "sentences": sentences,
        "gap_percent": gap,
        "draws_a_pair": SAMPLES,
        "alike": _shares(torch.cat([*alike, *mirrored]), gap) if alike else None,
        "apart": {name: _shares(found, gap) for name, found in apart.items()},
    }


def _shares(found: Tensor, gap: float) -> dict[str, float]:
    """Give how often a gap is at least `gap`, at most its negative, and the middle 90 %."""
    finite = found.nan_to_num(posinf=1e6)
    low, high = torch.quantile(_thinned(finite), torch.tensor([0.05, 0.95]).double()).tolist()
    return {
        "above": round((found >= gap).double().mean().item(), 4),
        "below": round((found <= -gap).double().mean().item(), 4),
        "low": round(low, 1),
        "high": round(high, 1),
    }


def _thinned(values: Tensor) -> Tensor:
    """Take evenly from more values than torch.quantile can sort (2^24)."""
    return values[:: 1 + len(values) // 2**23]


def statistics_of(score: Facts) -> Tensor:
    """Give the BLEU statistics (N, 10) that results keep of one cell and split."""
    held = score["statistics"]
    length = torch.tensor(held["length"])
    totals = [(length - n).clamp(min=0) for n in range(ORDERS)]
    columns = [length, torch.tensor(held["reference_length"])]
    columns += [torch.tensor(matched) for matched in held["matches"]]
    return torch.stack([*columns, *totals], dim=1).double()


def study_run(folder: Path, split: str | None) -> Facts:
    """Count chances in a run's results."""
    results = read_results(folder)
    split = split or results["splits"][0]
    systems = {
        row["name"]: [statistics_of(cell["scores"][split]) for cell in row["cells"]]
        for row in results["encodings"]
    }
    return {
        "asked": results["command"],
        "split": split,
        "seeds": [cell["seed"] for cell in results["encodings"][0]["cells"]],
        "first": results["encodings"][0]["name"],
        "of_all": {
            row["name"]: row["summary"][split]["bleu"]["mean"] for row in results["encodings"]
        },
        **chances(systems),
    }


def readme(results: Facts) -> str:
    """Write the README of the results folder out of its numbers alone."""
    gap, n, first = results["gap_percent"], results["sentences"], results["first"]
    alike = results["alike"]
    rows = []
    if alike is not None:
        rows.append(_row("an encoding and itself, other seed", None, alike))
    for name, found in results["apart"].items():
        whole = (results["of_all"][name] / results["of_all"][first] - 1) * 100
        rows.append(_row(f"`{name}` and `{first}`", whole, found))
    head = ["", "all sentences", f"at least +{gap} %", f"at most −{gap} %", "middle 90 %"]
    parts = [
        f"# What {n} sentences show",
        GENERATED,
        f"A report of {n} sentences claimed +{gap} % BLEU for rotary. Here {n} sentences of "
        f"{results['split']} are drawn {results['draws_a_pair']:,} times for each pair of trained "
        f"models (seeds {', '.join(map(str, results['seeds']))}), and BLEU of these {n} compared:",
        markdown_table(head, rows),
    ]
    if alike is not None:
        parts.append(
            f"So of two models that differ in their seed alone, the one is at least {gap} % better "
            f"on {n} sentences in {alike['above']:.0%} of draws, and at least as much worse in "
            f"{alike['below']:.0%}: such a gap tells nothing of an encoding."
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
    """Study a run and write the folder."""
    study_one_run(__doc__, study_run, readme, FOLDER, arguments)


if __name__ == "__main__":
    main()
