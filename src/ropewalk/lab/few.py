"""What a handful of sentences can show: how often chance alone makes a gap as large as reported.

Axes: N sentences, 10 BLEU statistics (see `scores`), M draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.scores import bleu_from_statistics

SENTENCES = 5
GAP = 8.01  # % of BLEU that a report of five sentences claimed for rotary over sinusoidal
DRAWS = 20_000


def gaps(
    first: Tensor, other: Tensor, *, sentences: int = SENTENCES, draws: int = DRAWS, seed: int = 0
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
    keys = torch.rand(draws, len(first), generator=generator)
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
        "draws_a_pair": DRAWS,
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
