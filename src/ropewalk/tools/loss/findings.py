"""What a measurement of losses shows, in sentences that claim no more than their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ropewalk.tools.loss.facts import (
    NONE,
    ContextLoss,
    Difference,
    LossMeasurement,
    RuleLoss,
    ShiftLoss,
    Shifts,
)
from ropewalk.tools.loss.interval import PASSAGES

LOSS_IS_NOT_ALL = (
    "loss says little about answers that need far context, because few tokens do (LongPPL, "
    "arXiv 2410.23771): measure RULER too"
)


def findings(found: LossMeasurement) -> list[str]:
    """Return a sentence for each finding."""
    said = [_longer(found, each) for each in found.results if each.contexts]
    said += [s for each in found.results[1:] if each.contexts for s in _shorter(found, each)]
    said += _lowest(found)
    said += _positions(named_shifts(found))
    return [*said, about_intervals(found), LOSS_IS_NOT_ALL]


def named_shifts(found: LossMeasurement) -> dict[str, Shifts]:
    """Return the shifts of the model as it is, and under each rule that was measured."""
    if found.not_patched:
        return {found.results[0].method: found.unpatched}
    own = {f"{found.results[0].method}, angles of transformers": found.unpatched}
    return own | {each.method: each.shifts for each in found.results if each.contexts}


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
    said = f"{rule.method}: loss with {here} is {abs(change.mean):.3f} {way} than with {there}"
    if change.low is None:
        return f"{said}, but too few tokens are scored for an interval"
    return f"{said} {interval(change)}"


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
    measured = [each for each in found.results if each.contexts]
    if len(measured) == 1:
        return
    said = f"lowest loss with {found.to:,} tokens of context: {found.lowest}"
    if found.tied:
        yield f"{said}; not shown to be higher: {', '.join(found.tied)}"
        return
    others = "all others" if measured == [*found.results] else "all others that were measured"
    yield f"{said}, and {others} are shown to be higher"


def _positions(shifts: Mapping[str, Shifts]) -> Iterator[str]:
    """Yield what shifted positions show, one sentence for all rules that are flat."""
    flat = [name for name, each in shifts.items() if each.flat]
    if flat:
        last = shifts[flat[0]].losses[-1].offset
        yield (
            f"flat: moving positions by up to {last:,} changes no token's loss by more than "
            f"rounding does, under {'; '.join(flat)}"
        )
    for name, each in shifts.items():
        if each.flat is None:
            yield f"{name}: positions are not compared, because {each.not_compared}"
        elif not each.flat:
            yield _not_flat(name, each)


def _not_flat(name: str, shifts: Shifts) -> str:
    worst, last = largest(shifts), shifts.losses[-1]
    return (
        f"{name}: not flat, moving positions by {worst.offset:,} changes a token's loss by "
        f"{worst.largest:.2g} (rounding explains {shifts.rounding:.2g}), and moving them by "
        f"{last.offset:,} changes the mean by {last.change.mean:+.2g} "
        f"{interval(last.change, '.2g')}: angles are not exact, or positions act elsewhere"
    )


def largest(shifts: Shifts) -> ShiftLoss:
    """Return the offset at which a token's loss changes most."""
    return max(shifts.losses, key=lambda each: each.largest)


def interval(change: Difference, digits: str = ".3f") -> str:
    """Return "(-0.051 to -0.012)", or that there is none."""
    if change.low is None or change.high is None:
        return "(too few tokens for an interval)"
    return f"({change.low:+{digits}} to {change.high:+{digits}})"


def _at(rule: RuleLoss, context: int) -> ContextLoss:
    return next(each for each in rule.contexts if each.context == context)
