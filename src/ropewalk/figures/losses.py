"""Losses of a model by context, and their changes at shifted positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ropewalk.checks import check_number
from ropewalk.figures.drawing import blank, calm, legend, note, plain, title
from ropewalk.figures.numbers import (
    Numbers,
    Row,
    increasing,
    like,
    named,
    positive,
    row,
    short,
)
from ropewalk.figures.palette import Scheme, style
from ropewalk.figures.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST = 1e-8  # nats; changes of 0 are drawn here, because their axis is logarithmic


def loss_by_context(
    contexts: Numbers,
    losses: Mapping[str, Numbers],
    *,
    halves: Mapping[str, Numbers] | None = None,
    original: float | None = None,
    relative_to: str | None = None,
    offsets: Numbers = None,
    changes: Mapping[str, Numbers] | None = None,
) -> Picture:
    """Return the loss of the same tokens by the context before them, for one or several rules.

    contexts: in tokens, increasing, above 0. losses: in nats per token, by name of the rule.
    halves: half the width of each interval, by name; drawn as bars.
    original: the context in training, drawn as a line.
    relative_to: in words, what was subtracted from the losses.
    offsets, changes: a second panel: by how many positions the tokens are moved, increasing, above
        0, and the largest change of a token's loss, by name. The axis is logarithmic, and changes
        below 1e-8 are drawn there.

    Example:
        >>> from ropewalk import figures
        >>> losses = {"none": [3, 4.2], "yarn": [3.1, 2.9]}
        >>> picture = figures.loss_by_context([256, 512], losses, original=256)
        >>> picture.alt.partition(". ")[2]
        'The lines: none, 3 at 256, 4.2 at 512; yarn, 3.1 at 256, 2.9 at 512.'
    """
    grid = positive("contexts", contexts, least=2)
    increasing("contexts", grid)
    found = _rows("losses", losses, "contexts", grid)
    bars = {} if halves is None else _rows("halves", halves, "contexts", grid)
    for name in bars:
        if name not in found:
            raise ValueError(f"halves must have names of losses, got {name!r}")
        if min(bars[name]) < 0:
            raise ValueError(f"halves[{name!r}] must not be negative, got {min(bars[name])}")
    if original is not None:
        check_number("original", original)
    if (offsets is None) != (changes is None):
        raise ValueError("offsets and changes must be given together, got only one of them")
    moved: Row = []
    moves: dict[str, Row] = {}
    if changes is not None:
        moved = positive("offsets", increasing("offsets", offsets))
        moves = _rows("changes", changes, "offsets", moved)

    def draw(scheme: Scheme) -> Figure:
        figure = blank(scheme, 8.0 if moves else 6.4, 3.8)
        panels = figure.subplots(1, 2, width_ratios=(3, 2)) if moves else [figure.subplots()]
        _by_context(panels[0], scheme, grid, found, bars, original)
        panels[0].set_ylabel(
            "loss, nats per token" if relative_to is None else f"loss minus {plain(relative_to)}"
        )
        if moves:
            _by_offset(panels[1], scheme, moved, moves, list(found))
        return figure

    said = f"Loss by tokens of context{f', minus {relative_to}' if relative_to else ''}."
    lines = "; ".join(f"{name}, {_told(grid, held)}" for name, held in found.items())
    alt = f"{said} The lines: {lines}."
    if moves:
        told = "; ".join(f"{name}, {short(max(held))}" for name, held in moves.items())
        alt += (
            f" The largest change of a token's loss if positions move by up to "
            f"{short(moved[-1])}: {told}."
        )
    data = {"contexts": grid, "losses": found, "halves": bars, "offsets": moved, "changes": moves}
    return Picture(draw, alt, data)


def _by_context(
    axes: Axes,
    scheme: Scheme,
    grid: Row,
    losses: Mapping[str, Row],
    bars: Mapping[str, Row],
    original: float | None,
) -> None:
    for place, (name, held) in enumerate(losses.items()):
        look = style(place)
        axes.errorbar(
            grid, held, yerr=bars.get(name), fmt=look.line, color=look.color, marker=look.marker,
            markersize=4, linewidth=1.5, capsize=2, elinewidth=1, label=plain(name),
        )  # fmt: skip
    title(axes, scheme, "")
    if original is not None:
        axes.axvline(original, color=scheme.quiet, linewidth=1, zorder=0)
        note(
            axes, scheme, "original context", xy=(original, 0.97), ha="right", va="top",
            xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(grid, [f"{each:,.0f}" for each in grid])
    axes.minorticks_off()
    axes.set_xlabel("context in tokens")
    legend(axes, scheme, room=60)
    calm(axes, scheme)


def _by_offset(
    axes: Axes, scheme: Scheme, offsets: Row, changes: Mapping[str, Row], names: list[str]
) -> None:
    more = [name for name in changes if name not in names]
    for name, held in changes.items():
        look = style([*names, *more].index(name))
        drawn = [max(each, SMALLEST) for each in held]
        label = plain(name) if name in more else "_"  # the other panel names the rest
        axes.plot(
            offsets, drawn, look.line, color=look.color, marker=look.marker, markersize=4,
            linewidth=1.5, label=label,
        )  # fmt: skip
    title(axes, scheme, "")
    axes.set_xscale("log", base=2)
    axes.set_xticks(offsets, [f"{each:,.0f}" for each in offsets])
    axes.set_yscale("log")
    # Wide enough that errors of rounding do not look like a change.
    axes.set_ylim(SMALLEST / 2, max(1.0, *(2 * max(held) for held in changes.values())))
    axes.minorticks_off()
    axes.set_xlabel("positions moved by")
    axes.set_ylabel("largest change of a token's loss")
    if more:
        legend(axes, scheme, room=40)
    calm(axes, scheme)


def _rows(name: str, value: Mapping[str, Numbers], other: str, grid: Row) -> dict[str, Row]:
    return {
        key: like(f"{name}[{key!r}]", row(f"{name}[{key!r}]", held), other, grid)
        for key, held in named(name, value).items()
    }


def _told(grid: Row, held: Row) -> str:
    return ", ".join(f"{short(y)} at {short(x)}" for x, y in zip(grid, held, strict=True))
