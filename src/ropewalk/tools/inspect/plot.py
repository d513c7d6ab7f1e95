"""The picture of `inspect`: wavelengths of each pair, next to the contexts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from ropewalk.figures.static import png, svg
from ropewalk.figures.wavelengths import Line, wavelength_figure
from ropewalk.files import write_bytes
from ropewalk.tools.inspect.facts import LayerKind, ModelReport, RopeFacts
from ropewalk.tools.ranges import ranges


def save_wavelengths(path: Path, reports: Sequence[ModelReport]) -> None:
    """Save the wavelengths of each kind of layer of the text, as PNG or SVG."""
    lines: list[Line] = []
    for report in reports:
        prefix = f"{Path(report.source).name}: " if len(reports) > 1 else ""
        lines += [line for kind in _kinds(report) for line in _lines(kind, prefix)]
    if not lines:
        raise ValueError("--plot needs a model with a rope, got one without")
    figure = wavelength_figure(lines, _contexts(reports))
    write_bytes(path, svg(figure) if path.suffix == ".svg" else png(figure))


def _kinds(report: ModelReport) -> list[LayerKind]:
    rotating = [kind for kind in report.kinds if kind.rope is not None]
    return [kind for kind in rotating if kind.stack == "text"] or rotating


def _lines(kind: LayerKind, prefix: str) -> Iterator[Line]:
    rope = kind.rope
    assert rope is not None
    layers = ", ".join(kind.layer_types) or f"layers {ranges(kind.layers)}"
    name = f"{prefix}{kind.stack}, {layers}"
    if rope.plain_wavelengths == rope.wavelengths:
        yield Line(name, _finite(rope.wavelengths))
        return
    yield Line(f"{name}, without the rule", _finite(rope.plain_wavelengths), dashed=True)
    yield Line(f"{name}, {rope.rule}", _finite(rope.wavelengths))


def _finite(wavelengths: Sequence[float]) -> tuple[float, ...]:
    return tuple(math.nan if each == math.inf else each for each in wavelengths)


def _contexts(reports: Sequence[ModelReport]) -> dict[str, int]:
    """Return the contexts of all ropes by a label; equal ones have one line."""
    found: dict[int, str] = {}
    ropes: list[RopeFacts] = [
        kind.rope for report in reports for kind in report.kinds if kind.rope is not None
    ]
    for rope in ropes:
        for name in ("original", "extended"):
            length = getattr(rope, f"{name}_length")
            if length is not None:
                what = f"{name} context" if rope.extended_length else "context"
                found.setdefault(length, f"{what} {length:,}")
    return {label: length for length, label in sorted(found.items())}
