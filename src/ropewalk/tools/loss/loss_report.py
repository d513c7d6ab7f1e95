"""A measurement of losses for a reader: sentences, rows for a terminal, a picture.

Sentences claim no more than their intervals. `ruler_command` is the command that measures RULER's
tasks with lm-eval, because a loss says little about answers that need far context.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ropewalk.figures.loss_pictures import loss_by_context
from ropewalk.tools.loss.loss_measurement import (
    NONE,
    PASSAGES,
    ContextLoss,
    Difference,
    LossMeasurement,
    RuleLoss,
    ShiftLoss,
    Shifts,
)
from ropewalk.tools.loss.loss_passes import NEAR

if TYPE_CHECKING:
    from ropewalk.figures.picture import Picture


LOSS_IS_NOT_ALL = (
    "loss says little about answers that need far context, because few tokens do (LongPPL, "
    "arXiv 2410.23771): measure RULER too"
)


def findings(found: LossMeasurement) -> list[str]:
    """Return a sentence for each finding."""
    measured = [rule for rule in found.results if rule.contexts]
    sentences = [_longer(found, rule) for rule in measured]
    for rule in measured[1:]:
        sentences += _shorter(found, rule)
    sentences += _lowest(found)
    sentences += _positions(named_shifts(found))
    return [*sentences, about_intervals(found), LOSS_IS_NOT_ALL]


def named_shifts(found: LossMeasurement) -> dict[str, Shifts]:
    """Return the shifts of the model as it is, and under each rule that was measured."""
    if found.not_patched:
        return {found.results[0].method: found.unpatched}
    own = {f"{found.results[0].method}, angles of transformers": found.unpatched}
    return own | {rule.method: rule.shifts for rule in found.results if rule.contexts}


def about_intervals(found: LossMeasurement) -> str:
    """Return what the intervals cover, or why there are none."""
    count = len(found.ends)
    passages = f"{count} passages" if count > 1 else "one passage"
    if not has_intervals(found):
        each = f"each of {passages}" if count > 1 else passages
        return (
            f"there are no intervals: {found.scored} tokens of {each} are too few; more passages, "
            f"or a longer text, give them"
        )
    if found.unit == PASSAGES:
        return (
            f"intervals are of 95 %, each for itself, and cover the choice of {passages} in this "
            f"text, not of other texts"
        )
    theirs = "blocks of tokens in them" if count > 1 else "blocks of its tokens"
    return (
        f"intervals are of 95 %, each for itself, and speak of {passages} of this text only: they "
        f"cover {theirs}; more passages, or a longer text, let them cover the choice of passages"
    )


def has_intervals(found: LossMeasurement) -> bool:
    """Return whether there are enough tokens for intervals, which all differences have then."""
    return found.results[0].contexts[0].from_none.low is not None


def _longer(found: LossMeasurement, rule: RuleLoss) -> str:
    """Return whether the longest context is better than the original one without a rule."""
    change = _at(rule, found.to).from_original
    base = "without a rule" if found.results[0].method == NONE else "under its own rule"
    here, there = f"{found.to:,} tokens of context", f"{found.original:,} {base}"
    if change.low is not None and not change.shown:
        return f"{rule.method}: no difference shown between {here} and {there} {interval(change)}"
    way = "lower" if change.mean < 0 else "higher"
    sentence = f"{rule.method}: loss with {here} is {abs(change.mean):.3f} {way} than with {there}"
    if change.low is None:
        return f"{sentence}, but too few tokens are scored for an interval"
    return f"{sentence} {interval(change)}"


def _shorter(found: LossMeasurement, rule: RuleLoss) -> Iterator[str]:
    """Yield what a rule changes with the original context, if that is shown."""
    change = _at(rule, found.original).from_none
    if change.shown:
        way = "lowers" if change.mean < 0 else "raises"
        yield (
            f"{rule.method}: it {way} the loss with {found.original:,} tokens of context by "
            f"{abs(change.mean):.3f} {interval(change)}"
        )


def _lowest(found: LossMeasurement) -> Iterator[str]:
    """Yield which method has the lowest loss, if there are several."""
    measured = sum(bool(rule.contexts) for rule in found.results)
    if measured == 1:
        return
    others = "all others" if measured == len(found.results) else "all others that were measured"
    rest = f", and {others} are shown to be higher"
    if found.tied:
        rest = f"; not shown to be higher: {', '.join(found.tied)}"
    yield f"lowest loss with {found.to:,} tokens of context: {found.lowest}{rest}"


def _positions(shifts: Mapping[str, Shifts]) -> Iterator[str]:
    """Yield what shifted positions show, one sentence for all rules that are flat."""
    flat = [name for name, of_rule in shifts.items() if of_rule.flat]
    if flat:
        last = shifts[flat[0]].losses[-1].offset
        yield (
            f"flat: moving positions by up to {last:,} changes no token's loss by more than "
            f"rounding does, under {'; '.join(flat)}"
        )
    for name, of_rule in shifts.items():
        if of_rule.flat is None:
            yield f"{name}: positions are not compared, because {of_rule.not_compared}"
        elif not of_rule.flat:
            worst, end = largest(of_rule), of_rule.losses[-1]
            yield (
                f"{name}: not flat, moving positions by {worst.offset:,} changes a token's loss by "
                f"{worst.largest:.2g} (rounding explains {of_rule.rounding:.2g}), and moving them "
                f"by {end.offset:,} changes the mean by {end.change.mean:+.2g} "
                f"{interval(end.change, '.2g')}: angles are not exact, or positions act elsewhere"
            )


def largest(shifts: Shifts) -> ShiftLoss:
    """Return the offset at which a token's loss changes most."""
    return max(shifts.losses, key=lambda at: at.largest)


def interval(change: Difference, digits: str = ".3f") -> str:
    """Return "(-0.051 to -0.012)", or that there is none."""
    if change.low is None or change.high is None:
        return "(too few tokens for an interval)"
    return f"({change.low:+{digits}} to {change.high:+{digits}})"


def _at(rule: RuleLoss, context: int) -> ContextLoss:
    return next(at for at in rule.contexts if at.context == context)


COLUMNS = 5  # contexts with an interval that fit into a line
Rows = list[tuple[str, ...]]


def loss_blocks(found: LossMeasurement) -> Iterator[tuple[str, Rows]]:
    """Yield the losses, their changes, the shifted positions and the findings."""
    base, count = found.results[0], len(found.ends)
    measured = [rule for rule in found.results if rule.contexts]
    grid = [at.context for at in base.contexts]
    passages = f"{count} passages" if count > 1 else "1 passage"
    yield (
        f"loss of the last {found.scored} tokens of {passages}, in nats per token, by tokens of "
        f"context",
        [
            ("", *(f"{context:,}" for context in grid)),
            *((rule.method, *(f"{at.loss:.3f}" for at in rule.contexts)) for rule in measured),
        ],
    )
    # The original context and the longest ones, as many as fit into a line.
    longest = [context for context in grid if context > found.original][-COLUMNS + 1 :]
    shorter = [context for context in grid if context < found.original]
    room = COLUMNS - 1 - len(longest)
    few = [*(shorter[-room:] if room else []), found.original, *longest]
    known = " (95 % interval: ±)" if has_intervals(found) else ""

    def changes(rules: Sequence[RuleLoss], which: Callable[[ContextLoss], Difference]) -> Rows:
        rows = [(r.method, *(_change(which(_at(r, context))) for context in few)) for r in rules]
        return [("", *(f"{context:,}" for context in few)), *rows]

    yield (
        f"change from {base.method} with {found.original:,} tokens of context{known}",
        changes(measured, lambda at: at.from_original),
    )
    if len(measured) > 1:
        yield (
            f"change from {base.method} with the same context{known}",
            changes(measured[1:], lambda at: at.from_none),
        )
    refused: Rows = [(rule.method, f"{rule.refused}.") for rule in found.results if rule.refused]
    if refused:
        yield "not measured", refused
    rows = [_shift_row(name, shifts) for name, shifts in named_shifts(found).items()]
    yield (
        f"the same {passages} of {found.shifted_length:,} tokens, at shifted positions",
        [("", "largest change", "from rounding", "slope per 1,000 positions", ""), *rows],
    )
    yield "findings", [("", f"{sentence}.") for sentence in findings(found)]


def _change(change: Difference) -> str:
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


def loss_picture(found: LossMeasurement) -> Picture:
    """Return the changes of loss, relative to the original context without another rule."""
    base = found.results[0]
    changes = {
        rule.method: [at.from_original for at in rule.contexts]
        for rule in found.results
        if rule.contexts
    }
    halves = {
        name: [change.high - change.mean for change in by_context if change.high is not None]
        for name, by_context in changes.items()
    }
    far = {
        name: [at for at in shifts.losses if at.offset > max(NEAR)]
        for name, shifts in named_shifts(found).items()
        if shifts.losses
    }
    moved = {name: [at.largest for at in by_offset] for name, by_offset in far.items()}
    offsets = [at.offset for at in next(iter(far.values()), [])]
    return loss_by_context(
        [at.context for at in base.contexts],
        {name: [change.mean for change in by_context] for name, by_context in changes.items()},
        halves=halves if has_intervals(found) else None,
        original=found.original,
        relative_to=f"that of {base.method} with {found.original:,} tokens",
        offsets=offsets or None,
        changes=moved if offsets else None,
    )


#: Two of RULER's 13 tasks: one is like finding a passkey, the other follows variables.
TASKS = ("niah_single_1", "ruler_vt")
FROM = "lm-eval 0.4.10 and later, from its documentation, not run"
INSTALL = "pip install 'lm_eval[hf,ruler]'"


LEAST = 512  # tokens; the questions alone take over 100, and answers up to 128


def ruler_command(path: str | os.PathLike[str], contexts: Sequence[int], dtype: str) -> str | None:
    """Return the command line for a model's folder and contexts, in tokens.

    Contexts of fewer than 512 tokens are left out; None if no other is left. The folder's
    config.json must describe the rule. Source: lm_eval/tasks/ruler/README.md and docs/interface.md
    of EleutherAI/lm-evaluation-harness.
    """
    lengths = [context for context in contexts if context >= LEAST]
    if not lengths:
        return None
    metadata = json.dumps({"max_seq_lengths": lengths}, separators=(",", ":"))
    model = f"pretrained={os.fspath(path)},max_length={max(lengths)},dtype={dtype}"
    words = ["lm-eval", "run", "--model", "hf", "--model_args", model]
    words += ["--tasks", ",".join(TASKS), "--metadata", metadata, "--batch_size", "1"]
    return shlex.join(words)
