"""Losses of trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ropewalk.figures.data import Curve, ceiling, mean_curve
from ropewalk.figures.drawing import blank, calm, names_beside, plain, title, width_of
from ropewalk.figures.numbers import increasing, like, named, row, short
from ropewalk.figures.palette import Scheme, style
from ropewalk.figures.picture import Picture

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
        figure = blank(scheme, width, max(3.2, 0.6 + 0.17 * len(names)))
        each = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (kind, losses) in zip(each, panels.items(), strict=True):
            for name, seeds in losses.items():
                _draw_seeds(axes, name, seeds, names.index(name))
            top = ceiling([curve for seeds in losses.values() for curve in seeds])
            if top is not None:
                axes.set_ylim(top=top * 1.02)
            axes.set_xlabel(plain(x_title))
            axes.set_ylabel("loss")
            title(axes, scheme, f"{kind} loss")
            calm(axes, scheme)
        names_beside(figure, each, scheme)
        return figure

    data = {
        kind: {name: _as_lists(seeds) for name, seeds in losses.items()}
        for kind, losses in panels.items()
    }
    told = [_in_words(kind, losses, x_title) for kind, losses in panels.items()]
    return Picture(draw, f"Training and validation loss by {x_title}. {' '.join(told)}", data)


def _losses(name: str, value: Any) -> Losses:
    """Return the curves of each encoding, checked."""
    found: Losses = {}
    for encoding, seeds in named(name, value).items():
        curves = []
        for curve in seeds:
            argument = f"{name}[{encoding!r}], seed {curve.seed}:"
            xs = increasing(f"{argument} x", curve.x, least=0)
            losses = like(f"{argument} loss", row(f"{argument} loss", curve.loss, least=0), "x", xs)
            curves.append(Curve(curve.seed, tuple(xs), tuple(losses), curve.diverged))
        found[encoding] = curves
    return found


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
