"""Errors of angles by position and dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ropewalk.figures.drawing import blank, calm, legend, note, plain, title
from ropewalk.figures.numbers import Numbers, increasing, like, named, positive, row, short
from ropewalk.figures.palette import Scheme, style
from ropewalk.figures.picture import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    found = {}
    for name, held in named("errors", errors).items():
        argument = f"errors[{name!r}]"
        numbers = like(argument, row(argument, held), "positions", places)
        for place, number in zip(places, numbers, strict=True):
            if not 0 <= number <= OPPOSITE + 1e-6:
                raise ValueError(
                    f"{argument} must be from 0 to π radians, got {number} at position "
                    f"{short(place)}; subtract full turns"
                )
        found[name] = numbers

    def draw(scheme: Scheme) -> Figure:
        figure = blank(scheme, 7.0, 3.9)
        axes = figure.subplots()
        for place, (name, held) in enumerate(found.items()):
            look = style(place)
            axes.plot(
                places, [n or math.nan for n in held], look.line, color=look.color,
                marker=look.marker, markersize=4, linewidth=1.6, label=plain(name),
            )  # fmt: skip
        axes.axhline(OPPOSITE, color=scheme.ink, linewidth=0.8, linestyle=":")
        note(
            axes, scheme, "π: the opposite direction", xy=(0.01, OPPOSITE), xytext=(0, 3),
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        drawn = [number for held in found.values() for number in held if number]
        axes.set_xlim(places[0] / 1.5, places[-1] * 1.5)
        axes.set_ylim(min([*drawn, OPPOSITE]) / 4, OPPOSITE * 6)
        title(axes, scheme, "")
        axes.set_xlabel("position")
        axes.set_ylabel("error of an angle, in radians")
        legend(axes, scheme)
        calm(axes, scheme)
        return figure

    told = [
        f"{name}, {short(held[0])} at {short(places[0])}, "
        f"{short(held[-1])} at {short(places[-1])}, at most {short(max(held))}"
        for name, held in found.items()
    ]
    alt = "Error of angles in radians by position, on logarithmic axes. "
    alt += f"The lines: {'; '.join(told)}."
    return Picture(draw, alt, {"positions": places, "errors": found})
