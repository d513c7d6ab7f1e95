"""A measurement on a terminal and as a figure, from its plain facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ropewalk.bench.contenders import OURS, WITHOUT_KERNEL
from ropewalk.files import Facts

if TYPE_CHECKING:
    from ropewalk.figures.picture import Picture

WIDTH = 100  # least width of a table; rich assumes 80 columns without a terminal
QUIET = 0.5  # active other processes; with more, times may be due to them


def print_part(console: Console, facts: Facts) -> None:
    """Print new facts of a measurement: its conditions, or one table."""
    (print_timings if "rows" in facts else print_conditions)(console, facts)


def print_conditions(console: Console, results: Facts) -> None:
    """Print the conditions of the times."""
    machine = results["machine"]
    threads = machine["threads"]
    facts = [machine["processor"], f"{threads} thread{'s' * (threads > 1)}"]
    if machine["device"] != "cpu":
        facts.append(machine["device"])
    facts += [f"{name} {number}" for name, number in results["versions"].items()]
    _say(console, ", ".join(facts))
    before = machine["load_before"]
    if before is not None and before > QUIET:
        _say(console, f"The machine is not quiet, load {before}: other processes may slow it.")
    if not results["kernel"]:
        where = machine["device"].partition(":")[0]
        _say(
            console,
            f"ropewalk's kernel for {where} is not installed (a C compiler was missing when "
            f"ropewalk was built, or triton is): its rows are the reference, in torch."
            if where in ("cpu", "cuda")
            else f"ropewalk has no kernel for {where}: its rows are the reference, in torch.",
        )


def print_timings(console: Console, timed: Facts) -> None:
    """Print one table: times, also relative to the limit and to transformers."""
    shapes = f"q {tuple(timed['q'])}, k {tuple(timed['k'])}"
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title=f"{table_title(timed)}; {shapes}",
        title_justify="left",
        title_style="bold",
    )
    heads = ("", "time", "× copy", "GB/s", "× transformers", "memory")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", no_wrap=True)
    for row in timed["rows"]:
        speed, peak = row["times_transformers"], row["peak_bytes"]
        table.add_row(
            f"{row['name']} (limit)" if row["limit"] else row["name"],
            duration(row["seconds"]),
            f"{row['of_copy']:.2f}",
            f"{row['gb_per_s']:.1f}",
            "" if speed is None or row["limit"] else f"{speed:.2f}",
            "" if peak is None else _size(peak),
        )
    console.print()
    console.width = max(console.width, WIDTH)
    console.print(table)
    for row in timed["refused"]:
        _say(console, f"not timed: {row['name']} ({row['reason']})")


def print_notes(console: Console, results: Facts) -> None:
    """Print which contenders were absent and why, once for all tables, and how to read these."""
    if results["absent"]:
        named = "; ".join(f"{row['name']} ({row['reason']})" for row in results["absent"])
        _say(console, f"\nabsent: {named}")
    rounds = [timed["rows"][0]["rounds"] for timed in results["tables"]]
    spread = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
    _say(
        console,
        f"\nMedians of {spread} rounds, rows in a new order in each. × copy: the time as a "
        f"multiple of the limit's time. GB/s: bytes of q and k (and of their gradients), read and "
        f"written once, per second. × transformers: how many times as fast. Memory: the most that "
        f"a call uses beyond its arguments, results included. New memory comes from the system "
        f"page by page or from memory that was freed before, so its limit varies. "
        f"{results['duration_s']:.0f} s.",
    )


def picture_of(results: Facts) -> Picture:
    """Return every table as bars, times as multiples of copying."""
    from ropewalk.figures.score_pictures import Bar, bars

    panels = {
        table_title(timed): [
            Bar(
                row["name"],
                row["of_copy"],
                tuple(value / row["seconds"] * row["of_copy"] for value in row["quartiles"]),
                duration(row["seconds"]),
                0 if row["name"].startswith(OURS) and row["name"] != WITHOUT_KERNEL else 1,
            )
            for row in timed["rows"]
            if not row["limit"]
        ]
        for timed in results["tables"]
    }
    return bars(panels, "time, as a multiple of copying, which is the line", limit=1.0)


def table_title(timed: Facts) -> str:
    """Return the title of a table."""
    return f"{timed['work']}, {timed['form']}, {timed['dtype']}"


def duration(seconds: float) -> str:
    """Return it with three digits, in ms or µs."""
    value, unit = (seconds * 1e3, "ms") if seconds >= 1e-3 else (seconds * 1e6, "µs")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _size(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:,.0f} {unit}"
    return f"{number} B"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)
