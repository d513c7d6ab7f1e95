"""Losses: of trainings by step, and of a model by context and at shifted positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ropewalk.checks import check_number
from ropewalk.figures.drawing import Scheme, line, plain, style, width_of
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    Curve,
    Numbers,
    Row,
    ceiling,
    increasing,
    like,
    mean_curve,
    named,
    named_rows,
    positive,
    row,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Losses = dict[str, list[Curve]]


def loss_curves(
    training: Mapping[str, Sequence[Curve]],
    validation: Mapping[str, Sequence[Curve]] | None = None,
    x_title: str = "steps",
) -> Picture:
    """Return the losses of trainings: a thin line for each seed, a bold one for their mean.

    A cross marks a seed that diverged; means leave such seeds out. The first 4 % of each curve,
    where the loss falls steeply, may be above the panel.

    training, validation: the curves of each seed, by the name of the encoding.
    x_title: what `x` of the curves counts.

    Example:
        >>> from ropewalk import figures
        >>> curves = [
        ...     figures.Curve(seed=1, x=(1, 2, 3), loss=(3.0, 2.5, 2.4)),
        ...     figures.Curve(seed=2, x=(1, 2, 3), loss=(3.2, 2.7, 2.2)),
        ... ]
        >>> picture = figures.loss_curves({"rotary": curves})
        >>> [round(loss, 2) for loss in picture.data["training"]["rotary"]["mean"]["loss"]]
        [3.1, 2.6, 2.3]
    """
    panels = {"training": _losses("training", training)}
    if validation is not None:
        panels["validation"] = _losses("validation", validation)
    names = list(dict.fromkeys(name for losses in panels.values() for name in losses))

    def draw(scheme: Scheme) -> Figure:
        width = 0.4 + 3.6 * len(panels) + width_of(names)
        height = max(3.2, 0.6 + 0.17 * len(names))
        figure, each = scheme.side_by_side(len(panels), width, height)
        for axes, (kind, losses) in zip(each, panels.items(), strict=True):
            for name, seeds in losses.items():
                _draw_seeds(axes, name, seeds, names.index(name))
            top = ceiling([curve for seeds in losses.values() for curve in seeds])
            if top is not None:
                axes.set_ylim(top=top * 1.02)
            scheme.dress(axes, x_title, "loss", f"{kind} loss")
        scheme.names_beside(figure, each)
        return figure

    data = {
        kind: {name: _as_lists(seeds) for name, seeds in losses.items()}
        for kind, losses in panels.items()
    }
    told = [_in_words(kind, losses, x_title) for kind, losses in panels.items()]
    return Picture(draw, f"Training and validation loss by {x_title}. {' '.join(told)}", data)


def _losses(name: str, value: Any) -> Losses:
    """Return the curves of each encoding, checked."""

    def read(encoding: str, curve: Curve) -> Curve:
        argument = f"{encoding}, seed {curve.seed}:"
        xs = increasing(f"{argument} x", curve.x, least=0)
        losses = like(f"{argument} loss", row(f"{argument} loss", curve.loss, least=0), "x", xs)
        return Curve(curve.seed, tuple(xs), tuple(losses), curve.diverged)

    return named(name, value, lambda encoding, seeds: [read(encoding, seed) for seed in seeds])


def _draw_seeds(axes: Axes, name: str, seeds: Sequence[Curve], place: int) -> None:
    look = style(place)
    for curve in seeds:
        axes.plot(curve.x, curve.loss, color=look.color, linewidth=0.8, alpha=0.4)
        if curve.diverged and curve.x:
            axes.plot(curve.x[-1], curve.loss[-1], "x", color=look.color, markersize=8)
    mean = mean_curve(seeds)
    if mean is not None:
        axes.plot(mean.x, mean.loss, look.line, color=look.color, linewidth=2)
    if axes.lines and seeds:
        axes.lines[-1].set_label(plain(name))


def _as_lists(seeds: Sequence[Curve]) -> dict[str, Any]:
    mean = mean_curve(seeds)
    lists = [{**asdict(curve), "x": [*curve.x], "loss": [*curve.loss]} for curve in seeds]
    return {"seeds": lists, "mean": mean and {"x": [*mean.x], "loss": [*mean.loss]}}


def _in_words(kind: str, losses: Losses, x_title: str) -> str:
    told = []
    for name, seeds in losses.items():
        mean, diverged = mean_curve(seeds), sum(curve.diverged for curve in seeds)
        words = [name]
        if mean is not None:
            words.append(f"{short(mean.loss[-1])} at {short(mean.x[-1])}")
        if diverged:
            words.append(f"{diverged} of {len(seeds)} seeds diverged")
        elif mean is None:
            words.append("no loss")
        told.append(", ".join(words))
    return f"Last {kind} loss, mean of seeds: {'; '.join(told)}."


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
    found = named_rows("losses", losses, "contexts", grid)
    bars = {} if halves is None else named_rows("halves", halves, "contexts", grid)
    for name in bars:
        if name not in found:
            raise ValueError(f"halves must have names of losses, got {name!r}")
        if min(bars[name]) < 0:
            raise ValueError(f"halves[{name!r}] must not be negative, got {min(bars[name])}")
    if original is not None:
        check_number("original", original)
    if (offsets is None) != (changes is None):
        raise ValueError("offsets and changes must be given together, got only one of them")
    moved = [] if offsets is None else positive("offsets", increasing("offsets", offsets))
    moves = {} if changes is None else named_rows("changes", changes, "offsets", moved)

    def draw(scheme: Scheme) -> Figure:
        ratios = (3, 2) if moves else (1,)
        width = 8.0 if moves else 6.4
        figure, panels = scheme.side_by_side(len(ratios), width, 3.8, width_ratios=ratios)
        axes = panels[0]
        for place, (name, ys) in enumerate(found.items()):
            look = style(place)
            axes.errorbar(
                grid, ys, yerr=bars.get(name), fmt=look.line, color=look.color, marker=look.marker,
                markersize=4, linewidth=1.5, capsize=2, elinewidth=1, label=plain(name),
            )  # fmt: skip
        if original is not None:
            axes.axvline(original, color=scheme.quiet, linewidth=1, zorder=0)
            scheme.note(
                axes, "original context", xy=(original, 0.97), ha="right", va="top",
                xycoords=("data", "axes fraction"), xytext=(-3, 0), textcoords="offset points",
            )  # fmt: skip
        _double(axes, grid)
        unit = "loss, nats per token" if relative_to is None else f"loss minus {relative_to}"
        scheme.dress(axes, "context in tokens", unit, names=60)
        if moves:
            _by_offset(panels[1], scheme, moved, moves, list(found))
        return figure

    lines = [
        ", ".join([name, *(f"{short(y)} at {short(x)}" for x, y in zip(grid, ys, strict=True))])
        for name, ys in found.items()
    ]
    alt = f"Loss by tokens of context{f', minus {relative_to}' if relative_to else ''}. "
    alt += f"The lines: {'; '.join(lines)}."
    if moves:
        told = "; ".join(f"{name}, {short(max(ys))}" for name, ys in moves.items())
        alt += (
            f" The largest change of a token's loss if positions move by up to "
            f"{short(moved[-1])}: {told}."
        )
    data = {"contexts": grid, "losses": found, "halves": bars, "offsets": moved, "changes": moves}
    return Picture(draw, alt, data)


def _double(axes: Axes, grid: Row) -> None:
    """Name these numbers on a logarithmic axis, which each doubling divides."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(grid, [f"{number:,.0f}" for number in grid])
    axes.minorticks_off()


def _by_offset(
    axes: Axes, scheme: Scheme, offsets: Row, changes: Mapping[str, Row], names: list[str]
) -> None:
    more = [name for name in changes if name not in names]
    for name, held in changes.items():
        label = "" if name in more else "_"  # the other panel names the rest
        drawn = [max(change, SMALLEST) for change in held]
        line(axes, [*names, *more].index(name), offsets, drawn, name, label=label)
    axes.set_yscale("log")
    _double(axes, offsets)
    # Wide enough that errors of rounding do not look like a change.
    axes.set_ylim(SMALLEST / 2, max(1.0, *(2 * max(held) for held in changes.values())))
    change = "largest change of a token's loss"
    scheme.dress(axes, "positions moved by", change, names=40 if more else 0)
