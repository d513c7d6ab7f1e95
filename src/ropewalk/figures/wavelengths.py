"""Wavelengths of pairs against lengths of contexts; how much of a head each pair has."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ropewalk.checks import shown
from ropewalk.figures.drawing import blank, calm, heat_map, legend, note, plain, scale, title
from ropewalk.figures.numbers import (
    Matrix,
    Numbers,
    Row,
    Table,
    like,
    listed,
    named,
    positive,
    short,
    span,
    table,
)
from ropewalk.figures.palette import Scheme, style
from ropewalk.figures.picture import Picture

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
    ropes = {
        name: _wavelengths(f"wavelengths[{name!r}]", held)
        for name, held in named("wavelengths", wavelengths).items()
    }
    for name in {*dashed, *([] if relative_to is None else [relative_to])} - set(ropes):
        raise ValueError(
            f"dashed and relative_to must name ropes of wavelengths ({', '.join(ropes)}), "
            f"got {shown(name)}"
        )
    lengths = {} if not contexts else {str(label): n for label, n in contexts.items()}
    positive("contexts", list(lengths.values()), least=0)
    ratios: dict[str, Row] = {}
    if relative_to is not None:
        base = ropes[relative_to]
        for name, held in ropes.items():
            like(f"wavelengths[{name!r}]", held, f"pairs of {relative_to!r}", base)
            ratios[name] = [each / one for each, one in zip(held, base, strict=True)]
    drawn = ratios or ropes

    def draw(scheme: Scheme) -> Figure:
        figure = blank(scheme, 7.0, 3.6 + 0.16 * len(drawn))
        axes = figure.subplots()
        for place, (name, held) in enumerate(drawn.items()):
            look = style(place)
            mark = "--" if name in dashed else look.line
            if dashed and name not in dashed and mark == "--":  # a sixth line repeats a color
                mark = ":"
            (line,) = axes.plot(held, mark, color=look.color, linewidth=1.8, marker=_dot(held))
            line.set_label(plain(name))
        if relative_to is None:
            if lengths or not all(math.isnan(n) for held in ropes.values() for n in held):
                axes.set_yscale("log")
            _context_lines(axes, scheme, lengths)
        else:
            axes.set_ylim(bottom=0)
        axes.set_facecolor(scheme.page)
        axes.set_xlabel("pair")
        per_turn = "positions per full turn"
        axes.set_ylabel(per_turn if relative_to is None else f"wavelength, × {plain(relative_to)}")
        legend(axes, scheme)
        calm(axes, scheme)
        return figure

    data = {"wavelengths": ropes, "contexts": lengths} | ({"ratios": ratios} if ratios else {})
    return Picture(draw, _wavelengths_in_words(ropes, ratios, lengths, relative_to), data)


def frequency_usage(
    norms: Mapping[str, Matrix],
    wavelengths: Numbers,
    contexts: Mapping[str, float] | None = None,
    *,
    heads_per_layer: int | None = None,
) -> Picture:
    """Return how much of each head's squared norm each pair has, as shades.

    norms: `(heads, R/2)` by name, such as queries and keys: the norm of each pair in each head.
    wavelengths: those of the pairs, increasing, in positions per full turn.
    contexts: lengths in positions, by label. Pairs right of a context's line have longer
        wavelengths.
    heads_per_layer: draws a line between layers of so many heads.

    Example:
        >>> from ropewalk import RotarySpec, figures
        >>> spec = RotarySpec(head_dim=8)
        >>> norms = {"queries": [[3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 3.0]]}  # two heads
        >>> picture = figures.frequency_usage(norms, spec.wavelengths(), {"trained length": 2048})
        >>> picture.data["shares"]["queries"][0]  # of the squared norm
        [0.75, 0.08333333333333333, 0.08333333333333333, 0.08333333333333333]
    """
    waves = _wavelengths("wavelengths", wavelengths)
    if any(not b > a for a, b in pairwise(waves)):
        raise ValueError(f"wavelengths must be finite and increase, got {shown(waves)}")
    shares: dict[str, Table] = {}
    for name, held in named("norms", norms).items():
        heads = table(f"norms[{name!r}]", held)
        like(f"norms[{name!r}]", heads[0], "wavelengths", waves)
        if not all(any(head) for head in heads):
            raise ValueError(f"norms[{name!r}] must have a number above 0 in each row")
        shares[name] = [[n * n / sum(m * m for m in head) for n in head] for head in heads]
    lengths = {} if not contexts else {str(label): n for label, n in contexts.items()}
    positive("contexts", list(lengths.values()), least=0)
    most = max(share for heads in shares.values() for head in heads for share in head)

    def draw(scheme: Scheme) -> Figure:
        tallest = max(len(heads) for heads in shares.values())
        figure = blank(scheme, min(9.0, 1.4 + 3.0 * len(shares)), 1.6 + min(3.4, 0.2 * tallest))
        panels = figure.subplots(1, len(shares), squeeze=False)[0]
        for axes, (name, heads) in zip(panels, shares.items(), strict=True):
            percent = [[100 * share for share in head] for head in heads]
            image = heat_map(axes, scheme, percent, 100 * most, signed=False)
            title(axes, scheme, name, pad=16 if lengths else 6)
            _usage_axes(axes, scheme, waves, lengths, len(heads), heads_per_layer)
        scale(figure, panels, scheme, image, "% of the squared norm")
        return figure

    told = [f"{_largest(heads)} for {name}" for name, heads in shares.items()]
    alt = (
        f"Shares of the squared norm by head and pair, up to {100 * most:.0f} %, wavelengths "
        f"{span(waves)} positions. Pair with the largest mean share: "
        f"{listed(told)}."
    )
    for label, length in lengths.items():
        beyond = [f"{100 * _beyond(h, waves, length):.0f} % of {n}" for n, h in shares.items()]
        alt += f" Pairs with wavelengths above {label} ({short(length)}) have {listed(beyond)}."
    return Picture(draw, alt, {"shares": shares, "wavelengths": waves, "contexts": lengths})


def _wavelengths(name: str, value: Any) -> Row:
    """Return wavelengths, with nan for pairs that do not rotate."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().tolist()
    finite = [math.nan if n == math.inf else n for n in value] if _is_row(value) else value
    return positive(name, finite, gaps=True)


def _is_row(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Mapping))


def _dot(held: Row) -> str:
    """Return a marker if a line cannot show the numbers: a pair between two that do not rotate."""
    return "." if sum(not math.isnan(n) for n in held) == 1 else ""


def _context_lines(axes: Axes, scheme: Scheme, lengths: Mapping[str, float]) -> None:
    for place, (label, length) in enumerate(lengths.items()):
        axes.axhline(length, color=scheme.ink, linewidth=0.8, linestyle=":")
        side, at = ("right", 0.99) if place % 2 else ("left", 0.01)  # neighbors may be close
        note(
            axes, scheme, label, xy=(at, length), xytext=(0, 2), ha=side,
            xycoords=("axes fraction", "data"), textcoords="offset points",
            bbox={"facecolor": scheme.page, "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )  # fmt: skip


def _usage_axes(
    axes: Axes,
    scheme: Scheme,
    waves: Row,
    lengths: Mapping[str, float],
    heads: int,
    per_layer: int | None,
) -> None:
    ticks = range(0, len(waves), max(1, -(-len(waves) // 6)))
    axes.set_xticks(list(ticks), [short(waves[tick]) for tick in ticks], rotation=30)
    axes.set_xlabel("wavelength of the pair, in positions")
    if per_layer:
        starts = range(0, heads, per_layer)
        middles = [start + (per_layer - 1) / 2 for start in starts]
        axes.set_yticks(middles, [f"layer {place}" for place in range(len(starts))])
        for start in starts[1:]:
            axes.axhline(start - 0.5, color=scheme.ink, linewidth=0.8)
    else:
        axes.set_ylabel("head")
        axes.set_yticks(range(0, heads, max(1, -(-heads // 8))))
    for label, length in lengths.items():
        below = sum(wave <= length for wave in waves)
        axes.axvline(below - 0.5, color=scheme.ink, linewidth=1, linestyle=":")
        note(
            axes, scheme, label, xy=(below - 0.5, 1), xytext=(0, 2), ha="center", va="bottom",
            xycoords=("data", "axes fraction"), textcoords="offset points",
        )  # fmt: skip


def _largest(heads: Table) -> int:
    """Return the pair with the largest mean share."""
    means = [sum(column) for column in zip(*heads, strict=True)]
    return means.index(max(means))


def _beyond(heads: Table, waves: Row, length: float) -> float:
    """Return the mean share of pairs with longer wavelengths."""
    sums = [sum(n for n, w in zip(head, waves, strict=True) if w > length) for head in heads]
    return sum(sums) / len(sums)


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
            lines[-1] += f" (of {len(held)} pairs, {listed(inside)} make a full turn)"
    unit = f"divided by that {relative_to}" if ratios else "in positions per full turn"
    return f"Wavelength of each pair, {unit}. The lines: {'; '.join(lines)}."
