"""Scores of encodings side by side: by seed, by length, and panels of bars with a limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ropewalk.figures.drawing import Scheme, plain, style, width_of
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    Outcome,
    Row,
    like,
    means_by_length,
    named,
    row,
    shift,
    short,
    span,
    spans_decades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def score_by_encoding(
    outcomes: Mapping[str, Outcome], score: str = "BLEU", tested_metric: str = ""
) -> Picture:
    """Return the score of each encoding: a dot for each seed, a bar for the mean.

    If differences are known, a second panel shows them with their 95 % intervals.

    outcomes: by the name of the encoding; differences are from the first one.
    score: the name of the score, with its unit.
    tested_metric: the name of the score of the differences, if it is another one.

    Example:
        >>> from ropewalk import figures
        >>> outcomes = {
        ...     "sinusoidal": figures.Outcome(values=(36.5, 37.9), mean=37.2),
        ...     "rotary": figures.Outcome((38.8, 40.4), 39.6, difference=(2.4, 1.1, 3.7)),
        ... }
        >>> picture = figures.score_by_encoding(outcomes)
        >>> picture.alt
        'BLEU by encoding. Mean and range of seeds: sinusoidal, 37.2 (36.5 to 37.9); rotary, 39.6 \
(38.8 to 40.4). Difference from sinusoidal, 95 % interval: rotary, 2.4 (1.1 to 3.7).'
    """

    def read(name: str, outcome: Outcome) -> Outcome:
        values = tuple(_known(f"{name}.values", outcome.values))
        mean = _known(f"{name}.mean", [outcome.mean])[0]
        return Outcome(values, mean, _difference(f"{name}.difference", outcome.difference))

    found = named("outcomes", outcomes, read)
    names = list(found)
    compared = any(held.difference for held in found.values())
    which = f"difference in {tested_metric}" if tested_metric else "difference"

    def draw(scheme: Scheme) -> Figure:
        width = 1.0 + 3.2 * (1 + compared) + width_of(names)
        height = 1.0 + 0.27 * len(names)
        figure, panels = scheme.side_by_side(1 + compared, width, height, sharey=True)
        for place, outcome in enumerate(found.values()):
            _draw_outcome(panels, outcome, place)
        panels[0].set_yticks(range(len(names)), [plain(name) for name in names])
        panels[0].set_ylim(len(names) - 0.4, -0.6)
        scheme.dress(panels[0], score, "")
        if compared:
            panels[1].axvline(0, color=scheme.ink, linewidth=0.8)
            scheme.dress(panels[1], f"{which} from {names[0]},\n95 % interval", "")
        return figure

    alt = f"{_sentence(score)} by encoding. Mean and range of seeds: "
    alt += f"{'; '.join(_outcome_in_words(n, held) for n, held in found.items())}."
    differences = {n: held.difference for n, held in found.items() if held.difference}
    if differences:
        told = [
            f"{name}, {short(value)} ({short(low)} to {short(high)})"
            for name, (value, low, high) in differences.items()
        ]
        alt += f" {_sentence(which)} from {names[0]}, 95 % interval: {'; '.join(told)}."
    data = {
        "values": {name: [*held.values] for name, held in found.items()},
        "means": {name: held.mean for name, held in found.items()},
        "differences": {name: [*ends] for name, ends in differences.items()},
    }
    return Picture(draw, alt, data)


def score_by_length(
    bins: Sequence[str],
    scores: Mapping[str, Sequence[Sequence[float | None]]],
    x_title: str = "words in the source sentence",
    y_title: str = "BLEU",
    *,
    logarithmic: bool = False,
) -> Picture:
    """Return a score by length: lines connect the means of seeds, small dots are seeds.

    Lines are moved a little along x, so that dots do not hide each other.

    bins: the labels of the lengths.
    scores: by the name of the encoding, for each seed one score for each bin; None if a seed has
        no score, and then there is no mean.
    x_title, y_title: what is counted, and the name of the score, each with its unit.
    logarithmic: uses a logarithmic axis if the scores differ by a factor of 4 or more.

    Example:
        >>> from ropewalk import figures
        >>> scores = {"none": [[30.0, 20.0], [32.0, 26.0]], "rotary": [[33.0, None], [34.0, 31.0]]}
        >>> picture = figures.score_by_length(["1–5", "6–10"], scores)
        >>> picture.data["means"]
        {'none': [31.0, 23.0], 'rotary': [33.5, None]}
    """
    labels = [str(label) for label in bins]
    found = named(
        "scores",
        scores,
        lambda name, seeds: [like(name, _known(name, seed), "bins", labels) for seed in seeds],
    )
    means = {n: means_by_length(seeds) or [None] * len(labels) for n, seeds in found.items()}

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(5.6 + width_of(found), max(3.4, 0.6 + 0.17 * len(found)))
        axes = figure.subplots()
        for place, (name, seeds) in enumerate(found.items()):
            look = style(place)
            xs = [i + shift(place, len(found)) for i in range(len(labels))]
            axes.plot(
                xs, _with_gaps(means[name]), look.line, color=look.color, marker=look.marker,
                markersize=5, linewidth=1.4, label=plain(name),
            )  # fmt: skip
            for values in seeds:
                known = _with_gaps(values)
                axes.plot(xs, known, look.marker, color=look.color, markersize=3, alpha=0.5)
        if logarithmic and spans_decades(found):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.set_xticks(range(len(labels)), [plain(label) for label in labels])
        scheme.dress(axes, x_title, y_title)
        scheme.names_beside(figure, [axes])
        return figure

    told = [f"{name}, {_ends_in_words(labels, means[name])}" for name in found]
    alt = f"{_sentence(y_title)} by {x_title}, mean of seeds. The lines: {'; '.join(told)}."
    return Picture(draw, alt, {"bins": labels, "scores": found, "means": means})


def _known(name: str, values: Sequence[float | None]) -> list[float | None]:
    """Return numbers, with None for those that are missing."""
    numbers = row(name, _with_gaps(values), least=0, gaps=True)
    return [None if math.isnan(number) else number for number in numbers]


def _with_gaps(values: Sequence[float | None]) -> Row:
    return [math.nan if value is None else value for value in values]


def _difference(name: str, value: Any) -> tuple[float, float, float] | None:
    """Return a difference and the ends of its interval; raise ValueError on another order."""
    if value is None:
        return None
    numbers = row(name, value)
    if len(numbers) != 3 or not numbers[1] <= numbers[0] <= numbers[2]:
        raise ValueError(
            f"{name} must be a difference, the low end and the high end of its interval, "
            f"got {numbers}"
        )
    return numbers[0], numbers[1], numbers[2]


def _draw_outcome(panels: Sequence[Axes], outcome: Outcome, place: int) -> None:
    look = style(place)
    known = [value for value in outcome.values if value is not None]
    panels[0].plot(
        known, [place] * len(known), look.marker, color=look.color, markersize=6, alpha=0.6
    )
    if outcome.mean is not None:
        panels[0].plot(
            outcome.mean, place, "|", color=look.color, markersize=14, markeredgewidth=2.5
        )
    if outcome.difference is not None:
        value, low, high = outcome.difference
        around = [[value - low], [high - value]]
        panels[1].errorbar(value, place, xerr=around, fmt=look.marker, color=look.color, capsize=4)


def _outcome_in_words(name: str, outcome: Outcome) -> str:
    known = [value for value in outcome.values if value is not None]
    if not known:
        return f"{name}, no score"
    if outcome.mean is None:
        return f"{name}, no mean ({span(known)})"
    return f"{name}, {short(outcome.mean)} ({span(known)})"


def _ends_in_words(labels: Sequence[str], means: Sequence[float | None]) -> str:
    """Return the first mean and the last one in words."""
    known = [(label, m) for label, m in zip(labels, means, strict=True) if m is not None]
    ends = dict.fromkeys([*known[:1], *known[-1:]])
    return ", ".join(f"{short(mean)} at {label}" for label, mean in ends) or "no mean"


def _sentence(text: str) -> str:
    """Return the text with a capital letter, as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Bar:
    """A bar's name and length, the ends of its whisker, its label, and the place of its color."""

    name: str
    value: float
    spread: tuple[float, ...]
    label: str
    place: int


def bars(panels: Mapping[str, Sequence[Bar]], x_title: str, limit: float) -> Picture:
    """Return panels of bars below each other, each with its title and a line at the limit."""
    names = {bar.name for rows in panels.values() for bar in rows}

    def draw(scheme: Scheme) -> Figure:
        heights = [max(1, len(rows)) + 2.4 for rows in panels.values()]
        figure = scheme.blank(5.5 + width_of(names), 0.5 + 0.24 * sum(heights))
        each = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        for axes, (name, rows) in zip(each[:, 0], panels.items(), strict=True):
            scheme.title(axes, name)
            _draw_rows(axes, scheme, rows)
            axes.axvline(limit, color=scheme.ink, linewidth=1)
            scheme.calm(axes)
            axes.grid(visible=False, axis="y")
            largest = max([limit, *(max(bar.value, *bar.spread) for bar in rows)])
            axes.set_xlim(0, largest * 1.15)  # room for the label of the longest bar
        each[-1, 0].set_xlabel(plain(x_title))
        return figure

    told = [
        f"{name}: " + "; ".join(f"{b.name}, {short(b.value)} ({b.label})" for b in rows)
        for name, rows in panels.items()
    ]
    alt = f"Bars: {x_title}, {short(limit)}. {'. '.join(told)}."
    return Picture(draw, alt, {name: [asdict(b) for b in rows] for name, rows in panels.items()})


def _draw_rows(axes: Axes, scheme: Scheme, rows: Sequence[Bar]) -> None:
    for y, bar in enumerate(rows):
        axes.barh(y, bar.value, height=0.7, color=style(bar.place).color)
        axes.plot(bar.spread, [y] * len(bar.spread), color=scheme.ink, linewidth=1)
        end = max(bar.value, *bar.spread)
        scheme.note(
            axes, bar.label, xy=(end, y), xytext=(4, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [plain(bar.name) for bar in rows])
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
