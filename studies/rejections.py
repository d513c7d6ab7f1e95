"""How often the significance test calls two equal systems different, and finds a difference.

`python studies/rejections.py [--trials N]` simulates BLEU of eight systems, of which six are equal
to the reference and one is better: chance acts by the sentence, by the seed, and by both. It writes
`results/rejections`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from common import GENERATED, RESULTS, markdown_table, write_study
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.scoring.bleu import bleu_from_statistics
from ropewalk.lab.scoring.significance import BETTER, compare_with
from ropewalk.machine import commit

FOLDER = RESULTS / "rejections"
SENTENCES, RESAMPLES, LEVEL = 200, 999, 0.05
EQUAL_SYSTEMS, SHIFT = 6, 0.3  # the shift of the better system, in logits of a correct word
COMMON = 0.2  # spread of what a seed does to all systems, in logits
SETTINGS = [(seeds, spread) for seeds in (3, 5, 8) for spread in (0.0, 0.1, 0.3)]
THIRDS = ("seeds agree", "middle", "seeds lie apart")  # of the comparisons of a setting


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
    common: Tensor | float = 0.0,
) -> Tensor:
    """Draw BLEU statistics (Z, N, 10) of a system that gets each word right with some probability.

    In logits it is 1 + `shift`, plus what each seed does to all systems (`common`, `(Z, 1)`), plus
    random effects of the system's seed, of the sentence, and of both.
    """
    count, longest = len(length), int(length.max())

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    logit = 1 + shift + common + seed_spread * normal(seeds, 1)
    logit = logit + 0.6 * ease + 0.5 * normal(seeds, count)
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


@dataclass(frozen=True)
class Trial:
    """The comparisons of one simulation.

    equal: for each equal system, the variance of its differences from the reference, and p.
    rejected: whether one of them came out different after Holm's correction.
    found: whether the better system did; gain: its mean difference in BLEU.
    """

    equal: tuple[tuple[float, float], ...]
    rejected: bool
    found: bool
    gain: float


def simulate(seeds: int, spread: float, trials: int) -> list[Trial]:
    """Simulate these numbers of seeds and trials."""
    generator = torch.Generator().manual_seed(1_000 * seeds + round(100 * spread))
    return [_trial(seeds, spread, trial, generator) for trial in range(trials)]


def _trial(seeds: int, spread: float, trial: int, generator: torch.Generator) -> Trial:
    length, ease = simulated_sentences(SENTENCES, generator)
    common = COMMON * torch.randn(seeds, 1, generator=generator)
    systems = [
        simulated_system(seeds, length, ease, spread, generator, shift, common)
        for shift in (*[0.0] * (EQUAL_SYSTEMS + 1), SHIFT)
    ]
    score = bleu_from_statistics
    tests = compare_with(0, systems, score, margin=1.0, resamples=RESAMPLES, seed=trial)
    *equal, better = [test for test in tests if test is not None]
    of_seeds = [score(system.sum(1)) for system in systems]
    apart = [(each - of_seeds[0]).var().item() for each in of_seeds[1:-1]]
    return Trial(
        tuple(zip(apart, (test.p for test in equal), strict=True)),
        any(test.p_holm < LEVEL for test in equal),
        better.verdict == BETTER,
        better.difference,
    )


def rejections(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the shares of comparisons with p < 0.05, of trials with an error, and of finds."""
    ordered = [p for _, p in sorted(pair for trial in trials for pair in trial.equal)]
    ends = [len(ordered) * third // 3 for third in range(4)]
    parts = {"all": ordered}
    parts |= {name: ordered[ends[i] : ends[i + 1]] for i, name in enumerate(THIRDS)}
    shares = {name: sum(p < LEVEL for p in part) / len(part) for name, part in parts.items()}
    return shares | {
        "any, Holm": sum(trial.rejected for trial in trials) / len(trials),
        "found, Holm": sum(trial.found for trial in trials) / len(trials),
        "gain": sum(trial.gain for trial in trials) / len(trials),
    }


def readme(results: Facts) -> str:
    """Return the README of the study."""
    names = ("all", *THIRDS, "any, Holm", "found, Holm")
    rows = [
        [
            f"{row['seeds']}",
            f"{row['seed_spread']:g}",
            *(f"{row[n]:.1%}" for n in names),
            f"{row['gain']:+.1f}",
        ]
        for row in results["rows"]
    ]
    trials, count = results["trials"], results["equal_systems"]
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / trials)
    most = {name: max(row[name] for row in results["rows"]) for name in names}
    found = {
        seeds: [row["found, Holm"] for row in results["rows"] if row["seeds"] == seeds]
        for seeds in sorted({row["seeds"] for row in results["rows"]})
    }
    parts = [
        "# How often equal systems come out different",
        GENERATED,
        f"{trials:,} simulations of each setting, of {results['sentences']} sentences scored by "
        f"BLEU, with {results['resamples']} resamples. In each, {count} systems that differ from a "
        "reference only by chance, and one that is better, are compared with it. A seed acts on "
        "all systems alike, and on each by itself, with the spread in the table (in logits of a "
        "correct word).",
        "- *all*: share of comparisons of equal systems with p < 0.05, which should be 5 %, and of "
        "each third by how far the differences of the seeds lie apart.\n"
        f"- *any, Holm*: share of simulations in which at least one of the {count} comes out "
        f"different after the correction. It should be at most 5 % (one standard error: {error:.1f}"
        " points).\n"
        "- *found, Holm*: share in which the better system is called better after the correction.",
        markdown_table(["seeds", "seed spread", *names, "its gain, BLEU"], rows),
        f"At most {most['all']:.1%} of the comparisons and {most['any, Holm']:.1%} of the "
        f"simulations come out different by chance. In the third whose seeds agree it is up to "
        f"{most[THIRDS[0]]:.1%} of the comparisons, in the others up to "
        f"{max(most[name] for name in THIRDS[1:]):.1%}: a few seeds that agree by chance hide how "
        "much seeds vary. The better system is found in "
        + ", ".join(
            f"{min(shares):.0%} to {max(shares):.0%} with {seeds} seeds"
            for seeds, shares in found.items()
        )
        + ".",
        f"```sh\n{results['command']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every setting and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if options.trials < 1:
        parser.error(f"--trials must be at least 1, got {options.trials}")
    rows = [
        {"seeds": seeds, "seed_spread": spread}
        | rejections(simulate(seeds, spread, options.trials))
        for seeds, spread in SETTINGS
    ]
    facts = {"trials": options.trials, "sentences": SENTENCES, "resamples": RESAMPLES}
    facts["equal_systems"] = EQUAL_SYSTEMS
    write_study(options.out, {"commit": commit(), **facts, "rows": rows}, readme)


if __name__ == "__main__":
    main()
