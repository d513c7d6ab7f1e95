"""How often the significance test calls two equal systems different.

`python studies/rejections.py [--trials N]` simulates BLEU of systems that differ only by chance:
by the sentence, by the seed, and by both. Trials are sorted by the spread of the seeds, because
few seeds may agree by chance. It writes `results/rejections`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from common import GENERATED, RESULTS, markdown_table, write_study
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.scoring.bleu import bleu_from_statistics
from ropewalk.lab.scoring.significance import compare_statistics
from ropewalk.machine import commit

FOLDER = RESULTS / "rejections"
SENTENCES, RESAMPLES, LEVEL = 200, 999, 0.05
SETTINGS = [(seeds, spread) for seeds in (2, 3, 5) for spread in (0.0, 0.1, 0.3)]
STRATA = ("seeds agree", "middle", "seeds lie apart")  # thirds of the trials of a setting


def simulated_sentences(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw each sentence's length in words and its ease in logits: both (N,)."""
    length = torch.randint(5, 18, (count,), generator=generator)
    return length, torch.randn(count, generator=generator)


def simulated_system(
    seeds: int,
    length: Tensor,
    ease: Tensor,
    seed_spread: float,
    generator: torch.Generator,
    shift: float = 0.0,
) -> Tensor:
    """Draw BLEU statistics (Z, N, 10) of a system that gets each word right with some probability.

    In logits it is 1 + `shift`, plus random effects of the seed, of the sentence, and of both.
    """
    count, longest = len(length), int(length.max())

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    logit = 1 + shift + seed_spread * normal(seeds, 1) + 0.6 * ease + 0.5 * normal(seeds, count)
    chance = logit.sigmoid().unsqueeze(-1).expand(seeds, count, longest)
    right = torch.rand(seeds, count, longest, generator=generator) < chance
    right &= torch.arange(longest) < length.unsqueeze(-1)
    matches, totals, run = [], [], right
    for order in range(4):
        matches.append(run.sum(-1))
        totals.append((length - order).clamp(min=0).expand(seeds, count))
        run = run[..., :-1] & right[..., order + 1 :]
    both = length.expand(seeds, count)
    return torch.stack([both, both, *matches, *totals], dim=-1).to(torch.float64)


def simulate(seeds: int, spread: float, trials: int) -> list[tuple[float, float]]:
    """Compare two equal systems in each trial: return the variance of their seeds, and p."""
    generator = torch.Generator().manual_seed(1_000 * seeds + round(100 * spread))
    found = []
    for trial in range(trials):
        length, ease = simulated_sentences(SENTENCES, generator)
        first, other = (simulated_system(seeds, length, ease, spread, generator) for _ in range(2))
        apart = sum(bleu_from_statistics(system.sum(1)).var().item() for system in (first, other))
        p = compare_statistics(
            first, other, bleu_from_statistics, resamples=RESAMPLES, seed=trial
        ).p
        found.append((apart, p))
    return found


def rejections(trials: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return the share of trials with p < 0.05: of all, and of each third by seed variance."""
    ordered = [p for _, p in sorted(trials)]
    size = len(ordered)
    ends = [size * third // 3 for third in range(4)]
    parts = {"all": ordered}
    parts |= {name: ordered[ends[i] : ends[i + 1]] for i, name in enumerate(STRATA)}
    return {name: sum(p < LEVEL for p in part) / len(part) for name, part in parts.items()}


def readme(results: Facts) -> str:
    """Return the README of the study."""
    rows = [
        [f"{row['seeds']}", f"{row['seed_spread']:g}", *(f"{row[n]:.1%}" for n in ("all", *STRATA))]
        for row in results["rows"]
    ]
    most = {name: max(row[name] for row in results["rows"]) for name in ("all", *STRATA)}
    trials = results["trials"]
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / trials)
    largest = max(row[name] for row in results["rows"] for name in STRATA)
    third = 100 * math.sqrt(largest * (1 - largest) / (trials // 3))
    parts = [
        "# How often equal systems come out different",
        GENERATED,
        f"Pairs of systems that differ only by chance were compared {trials:,} times for each "
        f"number of seeds and each spread of the seeds (in logits of a correct word), on "
        f"{results['sentences']} simulated sentences, with {results['resamples']} resamples. The "
        f"table shows the share with p < {LEVEL}, "
        f"which should be 5 %. One standard error is {error:.1f} points at 5 %, and {third:.1f} "
        f"points for the largest share of a third.",
        markdown_table(["seeds", "seed spread", "all", *STRATA], rows),
        f"The thirds are the trials sorted by the variance of the seeds' BLEU. In these settings, "
        f"at most {most['all']:.1%} of all trials come out different. In the third whose seeds "
        f"agree it is up to {most[STRATA[0]]:.1%}, in the others up to {most[STRATA[1]]:.1%}: a "
        f"few seeds that agree by chance hide how much seeds vary. Larger spreads were not "
        f"simulated. If a difference is shown while its seeds agree closely, train more seeds.",
        f"```sh\n{results['command']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every setting and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1_500)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if options.trials < 3:
        parser.error(f"--trials must be at least 3, one for each stratum, got {options.trials}")
    rows = [
        {"seeds": seeds, "seed_spread": spread}
        | rejections(simulate(seeds, spread, options.trials))
        for seeds, spread in SETTINGS
    ]
    facts = {"trials": options.trials, "sentences": SENTENCES, "resamples": RESAMPLES}
    write_study(options.out, {"commit": commit(), **facts, "rows": rows}, readme)


if __name__ == "__main__":
    main()
