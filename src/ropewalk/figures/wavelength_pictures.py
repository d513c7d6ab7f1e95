"""Pictures by pair: wavelengths against contexts, shares of a norm, and errors of angles."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ropewalk.checks import joined, shown
from ropewalk.figures.drawing import ROOM, Scheme, line, plain, style
from ropewalk.figures.picture import Picture
from ropewalk.figures.plot_data import (
    Matrix,
    Numbers,
    Row,
    Table,
    as_array,
    increasing,
    like,
    named,
    named_rows,
    positive,
    short,
    span,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def wavelengths_by_pair(
    wavelengths: Mapping[str, Numbers],
    contexts: Mapping[str, float] | None = None,
    *,
    dashed: Collection[str] = (),
    relative_to: str | None = None,
) -> Picture:
    """Return the wavelength of each pair for one or several ropes, with lines at contexts.

    wavelengths: positions per full turn, by the name of the rope; inf or nan if a pair does not
        rotate.
    contexts: lengths in positions, by label. Pairs below a context's line make a full turn in it.
    dashed: names of ropes to draw dashed.
    relative_to: the name of a rope; then each wavelength is divided by that rope's, the axis is
        linear, and contexts are not drawn.

    Example:
        >>> from ropewalk import RotarySpec, figures, scaling
        >>> plain = RotarySpec(head_dim=128)
        >>> yarn = RotarySpec(head_dim=128, scaling=scaling.YaRN(8, original_length=4096))
        >>> ropes = {"plain": plain.wavelengths(), "YaRN": yarn.wavelengths()}
        >>> picture = figures.wavelengths_by_pair(ropes, {"trained length": 4096})
        >>> [round(each[-1]) for each in picture.data["wavelengths"].values()]
        [54410, 435281]
    """
    ropes = named("wavelengths", wavelengths, wavelengths_row)
    for name in {*dashed, *([] if relative_to is None else [relative_to])} - set(ropes):
        raise ValueError(
            f"dashed and relative_to must name ropes of wavelengths ({', '.join(ropes)}), "
            f"got {shown(name)}"
        )
    lengths = _lengths(contexts)
    ratios: dict[str, Row] = {}
    if relative_to is not None:
        base = ropes[relative_to]
        for name, held in ropes.items():
            like(f"wavelengths[{name!r}]", held, f"pairs of {relative_to!r}", base)
            ratios[name] = [each / one for each, one in zip(held, base, strict=True)]
    drawn = ratios or ropes

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.0, 3.6 + 0.16 * len(drawn))
        axes = figure.subplots()
        for place, (name, held) in enumerate(drawn.items()):
            look = style(place)
            mark = "--" if name in dashed else look.line
            if dashed and name not in dashed and mark == "--":  # a sixth line repeats a color
                mark = ":"
            # A line cannot show a pair between two that do not rotate.
            dot = "." if sum(not math.isnan(n) for n in held) == 1 else ""
            text = plain(name)
            axes.plot(held, mark, color=look.color, linewidth=1.8, marker=dot, label=text)
        if relative_to is None:
            if lengths or not all(math.isnan(n) for held in ropes.values() for n in held):
                axes.set_yscale("log")
            _context_lines(axes, scheme, lengths)
        else:
            axes.set_ylim(bottom=0)
        unit = "positions per full turn" if relative_to is None else f"wavelength, × {relative_to}"
        scheme.dress(axes, "pair", unit, names=ROOM)
        return figure

    data = {"wavelengths": ropes, "contexts": lengths} | ({"ratios": ratios} if ratios else {})
    return Picture(draw, _wavelengths_in_words(ropes, ratios, lengths, relative_to), data)


def _lengths(contexts: Mapping[str, float] | None) -> dict[str, float]:
    lengths = {str(label): length for label, length in (contexts or {}).items()}
    positive("contexts", list(lengths.values()), least=0)
    return lengths


def wavelengths_row(name: str, value: Any) -> Row:
    """Return wavelengths, with nan for pairs that do not rotate."""
    array = as_array(name, value, "a row of numbers", 1)
    array[array == math.inf] = math.nan
    return positive(name, array, gaps=True)


def _context_lines(axes: Axes, scheme: Scheme, lengths: Mapping[str, float]) -> None:
    for place, (label, length) in enumerate(lengths.items()):
        axes.axhline(length, color=scheme.ink, linewidth=0.8, linestyle=":")
        side, at = ("right", 0.99) if place % 2 else ("left", 0.01)  # neighbors may be close
        scheme.note(
            axes, label, xy=(at, length), xytext=(0, 2), ha=side,
            xycoords=("axes fraction", "data"), textcoords="offset points",
            bbox={"facecolor": scheme.page, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )  # fmt: skip


def _wavelengths_in_words(
    ropes: Mapping[str, Row],
    ratios: Mapping[str, Row],
    lengths: Mapping[str, float],
    relative_to: str | None,
) -> str:
    lines = []
    for name, held in (ratios or ropes).items():
        known = [number for number in held if not math.isnan(number)]
        if known and name != relative_to:
            lines.append(f"{name}, {span(known)}")
        elif not known:
            lines.append(f"{name}, no pair rotates")
        inside = [f"{sum(n <= at for n in known)} within {what}" for what, at in lengths.items()]
        if known and inside and not ratios:
            lines[-1] += f" (of {len(held)} pairs, {joined(inside)} make a full turn)"
    unit = f"divided by that {relative_to}" if ratios else "in positions per full turn"
    return f"Wavelength of each pair, {unit}. The lines: {'; '.join(lines)}."


MOST_LABELS = 16  # of layers, on an axis
MANY = 64  # heads, from which on a picture is taller


def frequency_usage(
    norms: Mapping[str, Matrix],
    wavelengths: Numbers | Mapping[str, Numbers],
    contexts: Mapping[str, float] | None = None,
    *,
    heads_per_layer: int | Mapping[str, int] | None = None,
    layers: Mapping[str, Sequence[int]] | None = None,
) -> Picture:
    """Return how much of each head's squared norm each pair has, as shades.

    norms: `(heads, R/2)` by name, such as queries and keys: the norm of each pair in each head.
    wavelengths: those of the pairs, in positions per full turn, none shorter than the one before;
        inf if a pair does not rotate. A dict if they differ between the names.
    contexts: lengths in positions, by label. Pairs right of a context's line have longer
        wavelengths.
    heads_per_layer: the number of heads in a layer, to draw lines between layers; a dict if there
        are more query heads than key heads.
    layers: the numbers of the layers, by name, if they are not 0, 1, …

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> spec = RotarySpec(head_dim=8)
        >>> norms = {"queries": [[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 3.0]]}  # two heads
        >>> picture = figures.frequency_usage(norms, spec.wavelengths(), {"trained length": 2048})
        >>> picture.data["shares"]["queries"][0]  # of the squared norm
        [0.75, 0.08333333333333333, 0.08333333333333333, 0.08333333333333333]
    """
    tables = named("norms", norms, table)
    of = wavelengths if isinstance(wavelengths, Mapping) else dict.fromkeys(tables, wavelengths)
    heads_of = heads_per_layer
    if not isinstance(heads_of, Mapping):
        heads_of = dict.fromkeys(tables, heads_of or 0)
    waves: dict[str, Row] = {}
    shares: dict[str, Table] = {}
    for name, heads in tables.items():
        if name not in of:
            raise ValueError(f"wavelengths must name each of norms, got none for {shown(name)}")
        waves[name] = _not_decreasing(of[name])
        like(f"norms[{name!r}]", heads[0], "wavelengths", waves[name])
        if not all(any(head) for head in heads):
            raise ValueError(f"norms[{name!r}] must have a number above 0 in each row")
        shares[name] = [[n * n / sum(m * m for m in head) for n in head] for head in heads]
    lengths = _lengths(contexts)
    most = max(share for heads in shares.values() for head in heads for share in head)

    def draw(scheme: Scheme) -> Figure:
        tallest = max(len(heads) for heads in shares.values())
        height = 1.6 + min(3.4 if tallest < MANY else 7.0, 0.2 * tallest)
        width = min(9.0, 1.4 + 3.0 * len(shares))
        figure, panels = scheme.side_by_side(len(shares), width, height)
        for axes, (name, heads) in zip(panels, shares.items(), strict=True):
            percent = [[100 * share for share in head] for head in heads]
            image = scheme.heat_map(axes, percent, 100 * most, signed=False)
            scheme.title(axes, name, pad=16 if lengths else 6)
            numbers = None if layers is None else layers.get(name)
            _ticks(axes, waves[name], narrow=len(shares) > 2)
            _layers(axes, scheme, len(heads), heads_of.get(name), numbers)
            _contexts(axes, scheme, waves[name], lengths)
        scheme.scale(figure, panels, image, "% of the squared norm")
        return figure

    sums = {n: [sum(column) for column in zip(*heads, strict=True)] for n, heads in shares.items()}
    told = [f"{means.index(max(means))} for {name}" for name, means in sums.items()]
    known = [wave for row in waves.values() for wave in row if not math.isnan(wave)]
    alt = (
        f"Shares of the squared norm by head and pair, up to {100 * most:.0f} %, wavelengths "
        f"{span(known) if known else 'none'} positions. Pair with the largest mean share: "
        f"{joined(told)}."
    )
    for label, length in lengths.items():
        beyond = []
        for name, heads in shares.items():
            above = [place for place, wave in enumerate(waves[name]) if not wave <= length]
            share = sum(sum(head[place] for place in above) for head in heads) / len(heads)
            beyond.append(f"{100 * share:.0f} % of {name}")
        alt += f" Pairs with wavelengths above {label} ({short(length)}) have {joined(beyond)}."
    same = len({tuple(map(str, row)) for row in waves.values()}) == 1
    drawn = next(iter(waves.values())) if same else waves
    return Picture(draw, alt, {"shares": shares, "wavelengths": drawn, "contexts": lengths})


def _not_decreasing(value: Numbers) -> Row:
    """Return wavelengths, with nan at the end for pairs that do not rotate."""
    waves = wavelengths_row("wavelengths", value)
    if any(b < a or (math.isnan(a) and not math.isnan(b)) for a, b in pairwise(waves)):
        raise ValueError(f"wavelengths must not decrease, got {shown(waves)}")
    return waves


def _ticks(axes: Axes, waves: Row, *, narrow: bool) -> None:
    ticks = range(0, len(waves), max(1, -(-len(waves) // (4 if narrow else 6))))
    words = ["none" if math.isnan(waves[tick]) else short(waves[tick]) for tick in ticks]
    axes.set_xticks(list(ticks), words, rotation=30)
    axes.set_xlabel("wavelength" if narrow else "wavelength of the pair, in positions")


def _layers(
    axes: Axes, scheme: Scheme, heads: int, per_layer: int | None, numbers: Sequence[int] | None
) -> None:
    """Name the layers, or the heads if their number in a layer is not known."""
    if not per_layer:
        axes.set_ylabel("head")
        axes.set_yticks(range(0, heads, max(1, -(-heads // 8))))
        return
    starts = range(0, heads, per_layer)
    every = -(-len(starts) // MOST_LABELS)
    places = list(range(len(starts)))[::every]
    words = [f"layer {place if numbers is None else numbers[place]}" for place in places]
    axes.set_yticks([starts[place] + (per_layer - 1) / 2 for place in places], words)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=scheme.ink, linewidth=0.8 if every == 1 else 0.3)


def _contexts(axes: Axes, scheme: Scheme, waves: Row, lengths: Mapping[str, float]) -> None:
    for label, length in lengths.items():
        below = sum(wave <= length for wave in waves)
        axes.axvline(below - 0.5, color=scheme.ink, linewidth=1, linestyle=":")
        scheme.note(
            axes, label, xy=(below - 0.5, 1), xytext=(0, 2), ha="center", va="bottom",
            xycoords=("data", "axes fraction"), textcoords="offset points",
        )  # fmt: skip


#: The largest error that an angle can have: the hand points the opposite way.
OPPOSITE = math.pi


def angle_error(positions: Numbers, errors: Mapping[str, Numbers]) -> Picture:
    """Return the errors of angles by position, a line for each dtype, on logarithmic axes.

    positions: increasing, above 0.
    errors: in radians, from 0 to π, by the name of the dtype or library, one for each position,
        such as the largest one of all pairs. A line has a gap at an error of 0.

    Example:
        >>> import math, torch
        >>> from ropewalk import RotarySpec, figures
        >>> f = RotarySpec(head_dim=128).inverse_frequencies()  # float64, radians per position
        >>> def error(p, dtype):  # of a product in dtype, the largest of all pairs
        ...     product = torch.tensor(p).to(dtype) * f.to(dtype)
        ...     turns = (product.double() - p * f) / (2 * math.pi)
        ...     return float((turns - turns.round()).abs().max()) * 2 * math.pi
        >>> positions = [1000, 10_000, 100_000, 1_000_000, 10_000_000]
        >>> picture = figures.angle_error(
        ...     positions,
        ...     {
        ...         "float32": [error(p, torch.float32) for p in positions],
        ...         "bfloat16": [error(p, torch.bfloat16) for p in positions],
        ...     },
        ... )
        >>> [f"{number:.0e}" for number in picture.data["errors"]["float32"]]
        ['3e-05', '3e-04', '5e-03', '5e-02', '8e-01']
    """
    places = increasing("positions", positive("positions", positions, least=2))
    found = named_rows("errors", errors, "positions", places)
    for name, numbers in found.items():
        for place, number in zip(places, numbers, strict=True):
            if not 0 <= number <= OPPOSITE + 1e-6:
                raise ValueError(
                    f"errors[{name!r}] must be from 0 to π radians, got {number} at position "
                    f"{short(place)}; subtract full turns"
                )

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.0, 3.9)
        axes = figure.subplots()
        for place, (name, numbers) in enumerate(found.items()):
            line(axes, place, places, [n or math.nan for n in numbers], name, width=1.6)
        axes.axhline(OPPOSITE, color=scheme.ink, linewidth=0.8, linestyle=":")
        scheme.note(
            axes, "π: the opposite direction", xy=(0.01, OPPOSITE), xytext=(0, 3),
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        drawn = [number for numbers in found.values() for number in numbers if number]
        axes.set_xlim(places[0] / 1.5, places[-1] * 1.5)
        axes.set_ylim(min([*drawn, OPPOSITE]) / 4, OPPOSITE * 6)
        scheme.dress(axes, "position", "error of an angle, in radians", names=ROOM)
        return figure

    told = [
        f"{name}, {short(numbers[0])} at {short(places[0])}, "
        f"{short(numbers[-1])} at {short(places[-1])}, at most {short(max(numbers))}"
        for name, numbers in found.items()
    ]
    alt = "Error of angles in radians by position, on logarithmic axes. "
    alt += f"The lines: {'; '.join(told)}."
    return Picture(draw, alt, {"positions": places, "errors": found})
