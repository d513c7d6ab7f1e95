"""The picture of `extend`: wavelengths of each pair under each rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ropewalk.figures.static import png, svg
from ropewalk.figures.wavelengths import Line, wavelength_figure
from ropewalk.files import write_bytes
from ropewalk.tools.extend.facts import Extension


def save_rules(path: Path, found: Extension) -> None:
    """Save the wavelengths of the first rope under each rule, as PNG or SVG."""
    lines = [
        Line(each.method, _finite(each.numbers[0].wavelengths_after), dashed=each.method == "none")
        for each in found.results
        if each.numbers and not each.refused
    ]
    contexts = {
        f"original context {found.original_length:,}": found.original_length,
        f"new context {found.to:,}": found.to,
    }
    figure = wavelength_figure(lines, contexts)
    write_bytes(path, svg(figure) if path.suffix == ".svg" else png(figure))


def _finite(wavelengths: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.nan if each == math.inf else each for each in wavelengths)
