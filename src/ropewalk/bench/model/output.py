"""The measurement of a model on a terminal, from its plain facts."""

from __future__ import annotations

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ropewalk.bench.model.findings import findings, interval, limit, shares
from ropewalk.bench.model.steps import AFTER, BEFORE
from ropewalk.bench.output import print_conditions
from ropewalk.files import Facts

WIDTH = 160  # least width of a console; rich cuts the cells of a table that is wider

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
    console.width = max(console.width, WIDTH)
    _say(console, f"\n{_model_line(facts)}")
    _say(console, f"patch: {facts['patch']['says']}")
    _print_speed(console, facts)
    _print_rotation(console, facts)
    _print_lengths(console, facts)
    _print_logits(console, facts)
    for sentence in findings(facts):
        _say(console, f"- {sentence}")


def print_model_notes(console: Console, results: Facts) -> None:
    """Print how to read the tables, once for all dtypes."""
    _say(console, f"\n{NOTES} {results['duration_s']:.0f} s.")


def _model_line(facts: Facts) -> str:
    weights = "random weights" if facts["weights"] == "random" else "weights loaded"
    only = ", text only" if facts["input"] != "text" else ""
    return (
        f"{facts['model']}, {facts['layers']} layers, width {facts['width']}, "
        f"{facts['parameters']:,} parameters, {weights}, {facts['dtype']}, "
        f"{facts['attention']} attention{only}"
    )


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


def _print_rotation(console: Console, facts: Facts) -> None:
    heads = ("", "before", "after", "limit", "without rotation, × as fast")
    table = _table(f"Rotation's part of a step, {facts['dtype']}", heads)
    for work in facts["speed"]:
        if "not_measured" in work:
            continue
        parts, out = work["rotation"], work["left_out"]
        table.add_row(
            work["work"],
            *(shares(parts[when]) if when in parts else "" for when in (BEFORE, AFTER)),
            limit(parts[BEFORE]) if BEFORE in parts else "",
            "" if out is None else _times(out),
        )
    console.print(table)


def _print_lengths(console: Console, facts: Facts) -> None:
    """Print a note if the kinds of work have different token counts."""
    timed = [work for work in facts["speed"] if "not_measured" not in work]
    counts = {work["work"]: work.get("tokens", work.get("context")) for work in timed}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        _say(
            console,
            f"Token counts differ ({each}), so these parts cannot be compared with each other; "
            f"--tokens {min(counts.values())} makes them the same.",
        )


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


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)
