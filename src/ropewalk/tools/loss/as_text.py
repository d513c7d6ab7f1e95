"""A measurement of losses as text for a terminal: titles with rows of cells."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.tools.loss.facts import ContextLoss, Difference, LossMeasurement, RuleLoss, Shifts
from ropewalk.tools.loss.findings import findings, has_intervals, largest, named_shifts

COLUMNS = 5  # contexts with an interval that fit into a line
Rows = list[tuple[str, ...]]


def loss_blocks(found: LossMeasurement) -> Iterator[tuple[str, Rows]]:
    """Yield the losses, their changes, the shifted positions and the findings."""
    base, count = found.results[0], len(found.ends)
    shown = [each for each in found.results if each.contexts]
    grid = [each.context for each in base.contexts]
    passages = f"{count} passages" if count > 1 else "1 passage"
    yield (
        f"loss of the last {found.scored} tokens of {passages}, in nats per token, by tokens of "
        f"context",
        [
            ("", *(f"{each:,}" for each in grid)),
            *((each.method, *(f"{c.loss:.3f}" for c in each.contexts)) for each in shown),
        ],
    )
    few = _most_telling(grid, found.original)
    head = ("", *(f"{each:,}" for each in few))
    known = " (95 % interval: ±)" if has_intervals(found) else ""
    yield (
        f"change from {base.method} with {found.original:,} tokens of context{known}",
        [head, *((each.method, *_changes(each, few, from_none=False)) for each in shown)],
    )
    if len(shown) > 1:
        yield (
            f"change from {base.method} with the same context{known}",
            [head, *((each.method, *_changes(each, few, from_none=True)) for each in shown[1:])],
        )
    refused: Rows = [(each.method, f"{each.refused}.") for each in found.results if each.refused]
    if refused:
        yield "not measured", refused
    rows = [_shift_row(name, shifts) for name, shifts in named_shifts(found).items()]
    yield (
        f"the same {passages} of {found.shifted_length:,} tokens, at shifted positions",
        [("", "largest change", "from rounding", "slope per 1,000 positions", ""), *rows],
    )
    yield "findings", [("", f"{each}.") for each in findings(found)]


def _most_telling(grid: list[int], original: int) -> list[int]:
    """Return the original context and the longest ones, as many as fit into a line."""
    last = [each for each in grid if each > original][-COLUMNS + 1 :]
    shorter = [each for each in grid if each < original]
    room = COLUMNS - 1 - len(last)
    return [*(shorter[-room:] if room else []), original, *last]


def _changes(rule: RuleLoss, grid: list[int], *, from_none: bool) -> list[str]:
    found = {each.context: each for each in rule.contexts}
    return [_change(found[each], from_none) for each in grid]


def _change(at: ContextLoss, from_none: bool) -> str:
    change: Difference = at.from_none if from_none else at.from_original
    if change.mean == 0 and not change.low and not change.high:
        return "0"
    half = "" if change.high is None else f" ±{change.high - change.mean:.3f}"
    return f"{change.mean:+.3f}{half}"


def _shift_row(name: str, shifts: Shifts) -> tuple[str, ...]:
    if shifts.flat is None:
        return name, "", "", "", f"not compared: {shifts.not_compared}"
    return (
        name,
        f"{largest(shifts).largest:.1e}",
        f"{shifts.rounding:.1e}",
        f"{shifts.slope:+.1e}",
        "flat" if shifts.flat else "not flat",
    )
