"""How many seeds each encoding has, and which one lacks that another has."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_count, format_list


def lacking_seeds(results: Facts) -> dict[str, list[int]]:
    """Give the seeds that an encoding lacks and another has; it has no entry if it lacks none."""
    seeds = {row["name"]: {cell["seed"] for cell in row["cells"]} for row in results["encodings"]}
    every = set().union(*seeds.values())
    return {name: sorted(every - held) for name, held in seeds.items() if held != every}


def lacking_sentences(results: Facts) -> list[str]:
    """Say of each encoding that lacks seeds that it is not tested without them."""
    return [
        f"{name} lacks {'seed' if len(seeds) == 1 else 'seeds'} {format_list(map(str, seeds))}, "
        f"which others have: it is not tested without {'it' if len(seeds) == 1 else 'them'}."
        for name, seeds in lacking_seeds(results).items()
    ]


def seeds_text(rows: Sequence[Facts]) -> str:
    """Say of how many seeds the means of these encodings are, trained for how many steps."""
    alone = all(len(row["cells"]) == 1 for row in rows)
    text = "one seed" if alone else f"means of {seeds_each(rows)}"
    # A diverged training has fewer, and is told by itself.
    cells = [cell for row in rows for cell in row["cells"] if cell["status"] != "diverged"]
    steps = sorted({cell["steps"] for cell in cells})
    least = f"{steps[0]:,} to " if len(steps) > 1 else ""
    return f"{text} of {least}{format_count(steps[-1], 'step')}" if steps else text


def seeds_each(rows: Sequence[Facts]) -> str:
    """Say how many seeds each of these encodings has."""
    least, *more = sorted({len(row["cells"]) for row in rows})
    count = format_count(more[-1] if more else least, "seed")
    return f"{least} to {count}" if more else count
