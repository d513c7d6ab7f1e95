"""How many seeds each encoding has, and which encodings lack seeds that others have."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_count, format_list


def lacking_seeds(results: Facts) -> dict[str, list[int]]:
    """Return the seeds that an encoding lacks and another has; only encodings that lack some."""
    seeds = {row["name"]: {cell["seed"] for cell in row["cells"]} for row in results["encodings"]}
    every = set().union(*seeds.values())
    return {name: sorted(every - held) for name, held in seeds.items() if held != every}


def lacking_sentences(results: Facts) -> list[str]:
    """Return a sentence for each encoding that lacks seeds, and so is not tested."""
    return [
        f"{name} lacks {'seed' if len(seeds) == 1 else 'seeds'} {format_list(map(str, seeds))}, "
        f"which others have, so it is not tested."
        for name, seeds in lacking_seeds(results).items()
    ]


def seeds_text(rows: Sequence[Facts]) -> str:
    """Return how many seeds these means are taken over, and for how many steps each was trained."""
    alone = all(len(row["cells"]) == 1 for row in rows)
    means = "means" if len(rows) > 1 else "mean"
    text = "one seed" if alone else f"{means} of {seeds_each(rows)}"
    steps = steps_text(rows)
    return f"{text}, {steps}{'' if alone else ' each'}" if steps else text


def steps_text(rows: Sequence[Facts]) -> str:
    """Return for how many steps these encodings were trained; empty if all trainings diverged."""
    # A diverged training has fewer steps, and has a sentence of its own.
    cells = [cell for row in rows for cell in row["cells"] if cell["status"] != "diverged"]
    steps = sorted({cell["steps"] for cell in cells})
    least = f"{steps[0]:,} to " if len(steps) > 1 else ""
    return f"{least}{format_count(steps[-1], 'step')}" if steps else ""


def seeds_each(rows: Sequence[Facts]) -> str:
    """Return how many seeds each of these encodings has."""
    least, *more = sorted({len(row["cells"]) for row in rows})
    count = format_count(more[-1] if more else least, "seed")
    return f"{least} to {count}" if more else count
