"""Results of `ropewalk bench` on a terminal and as a figure, with findings as sentences.

Sentences claim no more than their intervals bear.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ropewalk.bench.clock import LEAST_ROUNDS, interval_rank
from ropewalk.bench.contenders import OURS, WITHOUT_KERNEL
from ropewalk.bench.model_bench import AFTER, BEFORE
from ropewalk.bench.rotation_bench import RotationResults, TimedTable
from ropewalk.files import Facts

if TYPE_CHECKING:
    from ropewalk.figures.picture import Picture


WIDTH = 100  # least width of a table; rich assumes 80 columns without a terminal
QUIET = 0.5  # active other processes; with more, times may be due to them


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


def print_part(console: Console, timed: Facts | TimedTable) -> None:
    """Print a new part of a measurement: its conditions, or times relative to copying."""
    if not isinstance(timed, TimedTable):
        print_conditions(console, timed)
        return
    table = _table(
        f"{table_title(timed)}; q {tuple(timed.q)}, k {tuple(timed.k)}",
        ("", "time", "× copy", "GB/s", "× transformers", "memory"),
    )
    for row in timed.rows:
        speed, peak = row.times_transformers, row.peak_bytes
        table.add_row(
            f"{row.name} (limit)" if row.limit else row.name,
            duration(row.seconds),
            f"{row.of_copy:.2f}",
            f"{row.gb_per_s:.1f}",
            "" if speed is None or row.limit else f"{speed:.2f}",
            "" if peak is None else _size(peak),
        )
    console.print()
    console.width = max(console.width, WIDTH)
    console.print(table)
    for refused in timed.refused:
        _say(console, f"not timed: {refused.name} ({refused.reason})")


def print_notes(console: Console, results: RotationResults) -> None:
    """Print which contenders were absent and why, once for all tables, and how to read these."""
    if results.absent:
        named = "; ".join(f"{each.name} ({each.reason})" for each in results.absent)
        _say(console, f"\nabsent: {named}")
    rounds = [timed.rows[0].rounds for timed in results.tables]
    spread = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
    _say(
        console,
        f"\nMedians of {spread} rounds, rows in a new order in each. × copy: the time as a "
        f"multiple of the limit's time. GB/s: bytes of q and k (and of their gradients), read and "
        f"written once, per second. × transformers: how many times as fast. Memory: the most that "
        f"a call uses beyond its arguments, results included. New memory comes from the system "
        f"page by page or from memory that was freed before, so its limit varies. "
        f"{results.duration_s:.0f} s.",
    )


def picture_of(tables: Sequence[TimedTable]) -> Picture:
    """Return every table as bars, times as multiples of copying."""
    from ropewalk.figures.score_pictures import Bar, bars

    panels = {
        table_title(timed): [
            Bar(
                row.name,
                row.of_copy,
                tuple(value / row.seconds * row.of_copy for value in row.quartiles),
                duration(row.seconds),
                0 if row.name.startswith(OURS) and row.name != WITHOUT_KERNEL else 1,
            )
            for row in timed.rows
            if not row.limit
        ]
        for timed in tables
    }
    return bars(panels, "time, as a multiple of copying, which is the line", limit=1.0)


def table_title(timed: TimedTable) -> str:
    """Return the title of a table."""
    return f"{timed.work}, {timed.form}, {timed.dtype}"


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


def findings(measured: Facts) -> list[str]:
    """Return a sentence for each finding about the model in one dtype."""
    changed = measured["patch"]
    said = [
        f"patch replaced no {what}; times and logits show only the rest."
        for what, paths in (("tables", changed["tables"]), ("rotation", changed["taken"]))
        if not paths
    ]
    said += [sentence for work in measured["speed"] for sentence in _of_work(work)]
    return said + list(_of_logits(measured["logits"], measured["weights"]))


def interval(found: Facts) -> str:
    """Return "1.023 to 1.081", or "" if there were too few rounds."""
    return "" if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}"


def shares(found: Facts) -> str:
    """Return shares with two digits: "4.1 % (2.0 to 6.1)", or "12 %" after too few rounds."""
    middle = f"{_digits(found['median'])} %"
    if found["low"] is None:
        return middle
    return f"{middle} ({_digits(found['low'])} to {_digits(found['high'])})"


def limit(rotation: Facts) -> str:
    """Return how many times as fast a step would be if its rotation took no time.

    It is a range such as "1.020 to 1.065", or "" if the part of rotation has no interval.
    """
    if rotation["low"] is None or rotation["high"] >= 1:
        return ""
    return f"{1 / (1 - rotation['low']):.3f} to {1 / (1 - rotation['high']):.3f}"


def _digits(share: float) -> str:
    return f"{100 * share:.1f}" if abs(share) < 0.0995 else f"{100 * share:.0f}"


def _of_work(work: Facts) -> Iterator[str]:
    name = work["work"]
    if "not_measured" in work:
        yield f"{name}: not measured, {work['not_measured']}."
        return
    yield _speed(name, work["times_as_fast"])
    if work["rotation"]:
        yield _rotation(name, work["rotation"])
    if work["left_out"] is None:
        yield f"{name}: rotation cannot be left out, because {work['why_not_left_out']}."
    elif not work["rotation"]:
        yield _left_out(name, work["left_out"])


def _speed(name: str, found: Facts) -> str:
    times = f"{found['median']:.3f} times as fast after patch"
    if found["low"] is None:
        return f"{name}: {times}; fewer than {LEAST_ROUNDS} rounds give no interval."
    if found["low"] > 1:
        return f"{name}: {times} (95 % interval {interval(found)})."
    if found["high"] < 1:
        return f"{name}: slower after patch, {times} (95 % interval {interval(found)})."
    return f"{name}: no difference shown ({interval(found)} times as fast after patch)."


def _rotation(name: str, found: Facts) -> str:
    parts = [f"{shares(each)} of a step {when} patch" for when, each in found.items()]
    said = f"{name}: rotation takes {' and '.join(parts)}"
    fastest = limit(found[BEFORE]) if BEFORE in found else ""
    if not fastest:
        return f"{said}."
    return f"{said}; if it took no time, a step would be {fastest} times as fast as before."


def _left_out(name: str, found: Facts) -> str:
    said = f"{name}: without rotation {found['median']:.3f} times as fast as before patch"
    if found["low"] is None:
        return f"{said}; no interval."
    if found["low"] <= 1 <= found["high"]:
        return f"{name}: without rotation no difference shown ({interval(found)} times as fast)."
    return f"{said} ({interval(found)})."


def _of_logits(logits: Facts, weights: str) -> Iterator[str]:
    if "not_measured" in logits:
        yield f"logits: not measured, {logits['not_measured']}."
        return
    if logits["not_compared"]:
        yield (
            f"logits: near and far positions are not compared, because {logits['not_compared']}; "
            f"only before and after patch are."
        )
    near, spread = logits["near"]["largest"], logits["spread"]
    if not near <= logits["rounding"] * spread:
        yield (
            f"logits: patch moves them by {near:.1g} already at positions from 0 on, more than "
            f"rounding does: the times compare two different models."
        )
    for row in logits["rows"]:
        if "not_measured" in row:
            yield f"logits at {row['last'] + 1:,}: not measured, {row['not_measured']}."
        elif row["before"] is not None:
            yield _moved(row, logits)
    if weights == "random":
        yield "logits: the weights are random, so this is the size of rounding, not of its effect."


def _moved(row: Facts, logits: Facts) -> str:
    before, after, count = row["before"], row["after"], logits["passage"]
    sizes = (
        f"at most {before['largest']:.1g} before patch and {after['largest']:.1g} after "
        f"(standard deviation of logits {logits['spread']:.2g})"
    )
    tops = (
        f"the likeliest token changes in {before['top_changed']} of {count} places before, "
        f"{after['top_changed']} after"
    )
    said = f"logits at {row['last'] + 1:,}: they move by {sizes}; {tops}."
    return f"{said} {_paired(row['kl_after'], count)}"


def _paired(after: Facts, count: int) -> str:
    """Return the result of the sign test of each token's KL divergence, after against before."""
    smaller, larger = after["smaller"], after["larger"]
    places = f"KL divergence smaller after patch in {smaller} of {count} places, larger in {larger}"
    rank = interval_rank(smaller + larger)
    if rank is None or min(smaller, larger) > rank:
        return f"No difference in the next token's distribution shown ({places})."
    how = "less" if smaller > larger else "more"
    return f"The next token's distribution moves {how} after patch ({places})."


MODEL_WIDTH = 160  # least width of a console; rich cuts the cells of a table that is wider

NOTES = (
    "Tokens per second before patch are the median of rounds, in which all variants of a step take "
    "turns. × as fast is the median of ratios within rounds, with its 95 % interval in "
    "parentheses. Tokens per second after patch are those before, times × as fast. Batch 1. "
    "Prefill returns the last token's logits and a cache. Decode adds single tokens to a context. "
    "Training is forward and backward, without an optimizer. "
    "Rotation's part: time in the functions that compute tables and rotate, gradients included. "
    "Limit: how many times as fast a step would be as before patch if that took no time, from the "
    "95 % interval of the part. Without "
    "rotation: nothing is rotated, compared with before patch. Logits: a passage alone at "
    "far positions, compared with the same passage at 0, as the largest difference, the mean KL "
    "divergence (nats), and the places where another token becomes the likeliest. By patch: the "
    "largest difference between before and after patch."
)


def print_model_part(console: Console, facts: Facts) -> None:
    """Print new facts: the conditions of the measurement, or the model in one dtype.

    What is being done is printed on standard error, if that is a terminal.
    """
    if "now" in facts:
        if sys.stderr.isatty():
            print(f"{facts['now']} …", file=sys.stderr)
        return
    if "speed" not in facts:
        print_conditions(console, facts)
        return
    console.width = max(console.width, MODEL_WIDTH)
    weights = "random weights" if facts["weights"] == "random" else "weights loaded"
    only = ", text only" if facts["input"] != "text" else ""
    _say(
        console,
        f"\n{facts['model']}, {facts['layers']} layers, width {facts['width']}, "
        f"{facts['parameters']:,} parameters, {weights}, {facts['dtype']}, "
        f"{facts['attention']} attention{only}",
    )
    _say(console, f"patch: {facts['patch']['says']}")
    _print_speed(console, facts)
    timed = [work for work in facts["speed"] if "not_measured" not in work]
    _print_rotation(console, timed, facts["dtype"])
    counts = {work["work"]: work.get("tokens", work.get("context")) for work in timed}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        _say(
            console,
            f"Token counts differ ({each}), so these parts cannot be compared with each other; "
            f"--tokens {min(counts.values())} makes them the same.",
        )
    _print_logits(console, facts)
    for sentence in findings(facts):
        _say(console, f"- {sentence}")


def print_model_notes(console: Console, results: Facts) -> None:
    """Print how to read the tables, once for all dtypes."""
    _say(console, f"\n{NOTES} {results['duration_s']:.0f} s.")


def _print_speed(console: Console, facts: Facts) -> None:
    table = _table(
        f"Tokens per second, {facts['dtype']}",
        ("", "tokens", "before", "after", "× as fast", "rounds"),
    )
    for work in facts["speed"]:
        if "not_measured" in work:
            table.add_row(work["work"], "not measured")
            continue
        rate = work["tokens_per_second"][BEFORE]
        table.add_row(
            work["work"],
            f"{work['tokens']:,}" if "tokens" in work else f"at {work['context']:,}",
            _rate(rate),
            _rate(rate * work["times_as_fast"]["median"]),  # medians apart could contradict it
            _times(work["times_as_fast"]),
            str(work["times_as_fast"]["rounds"]),
        )
    console.print(table)


def _print_rotation(console: Console, timed: Sequence[Facts], dtype: str) -> None:
    heads = ("", "before", "after", "limit", "without rotation, × as fast")
    table = _table(f"Rotation's part of a step, {dtype}", heads)
    for work in timed:
        parts, out = work["rotation"], work["left_out"]
        table.add_row(
            work["work"],
            *(shares(parts[when]) if when in parts else "" for when in (BEFORE, AFTER)),
            limit(parts[BEFORE]) if BEFORE in parts else "",
            "" if out is None else _times(out),
        )
    console.print(table)


def _print_logits(console: Console, facts: Facts) -> None:
    logits = facts["logits"]
    if "not_measured" in logits:
        return
    heads = ("positions", "by patch", "moved before", "after", "KL before", "after", "top changed")
    title = (
        f"Logits of {logits['passage']} tokens ({logits['tokens']}), {facts['dtype']}; "
        f"standard deviation {logits['spread']:.2g}"
    )
    table = _table(title, heads)
    table.add_row(f"0 to {logits['passage'] - 1}", f"{logits['near']['largest']:.1g}")
    for row in logits["rows"]:
        where = f"{row['first']:,} to {row['last']:,}"
        if "not_measured" in row:
            table.add_row(where, "not measured")
            continue
        where += " *" if row["beyond_config"] else ""
        cells = [where, f"{row['between']['largest']:.1g}"]
        if row["before"] is not None:
            pair = row["before"], row["after"]
            cells += [f"{each['largest']:.1g}" for each in pair]
            cells += [f"{each['kl']:.1g}" for each in pair]
            cells.append(" | ".join(str(each["top_changed"]) for each in pair))
        table.add_row(*cells)
    console.print(table)
    if any(row["beyond_config"] for row in logits["rows"]):
        _say(console, f"* beyond the {facts['config_positions']:,} positions of the config")


def _table(title: str, heads: tuple[str, ...]) -> Table:
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold"
    )
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", no_wrap=True)
    return table


def _times(found: Facts) -> str:
    between = interval(found)
    return f"{found['median']:.3f} ({between})" if between else f"{found['median']:.3f}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
