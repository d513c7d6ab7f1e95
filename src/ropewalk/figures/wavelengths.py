"""Wavelengths of pairs against lengths of contexts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ropewalk.checks import shown
from ropewalk.figures.drawing import blank, calm, legend, note, plain
from ropewalk.figures.numbers import (
    Numbers,
    Row,
    like,
    listed,
    named,
    positive,
    span,
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
        name: wavelengths_row(f"wavelengths[{name!r}]", held)
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


def wavelengths_row(name: str, value: Any) -> Row:
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
