"""The picture of a measurement: losses by context and their changes at shifted positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.figures.loss_pictures import loss_by_context
from ropewalk.tools.loss.facts import LossMeasurement
from ropewalk.tools.loss.findings import has_intervals, named_shifts
from ropewalk.tools.loss.windows import NEAR

if TYPE_CHECKING:
    from ropewalk.figures.picture import Picture


def loss_picture(found: LossMeasurement) -> Picture:
    """Return the changes of loss, relative to the original context without another rule."""
    base = found.results[0]
    shown = [each for each in found.results if each.contexts]
    changes = {r.method: [c.from_original for c in r.contexts] for r in shown}
    halves = {
        name: [c.high - c.mean for c in held if c.high is not None]
        for name, held in changes.items()
    }
    shifts = {name: each for name, each in named_shifts(found).items() if each.losses}
    moved = {
        name: [each.largest for each in held.losses if each.offset > max(NEAR)]
        for name, held in shifts.items()
    }
    first = next(iter(shifts.values()), None)
    offsets = [] if first is None else [e.offset for e in first.losses if e.offset > max(NEAR)]
    return loss_by_context(
        [each.context for each in base.contexts],
        {name: [each.mean for each in held] for name, held in changes.items()},
        halves=halves if has_intervals(found) else None,
        original=found.original,
        relative_to=f"that of {base.method} with {found.original:,} tokens",
        offsets=offsets or None,
        changes=moved if offsets else None,
    )


def save_losses(path: Path, found: LossMeasurement) -> None:
    """Save the picture of a measurement, as PNG or SVG."""
    loss_picture(found).save(path)
