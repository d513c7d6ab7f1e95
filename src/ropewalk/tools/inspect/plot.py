"""The picture of `inspect`: wavelengths of each pair, next to the contexts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ropewalk.figures.wavelength_pictures import wavelengths_by_pair
from ropewalk.tools.inspect.facts import LayerKind, ModelReport, RopeFacts
from ropewalk.tools.ranges import ranges

_WITHOUT = ", without the rule"


def save_wavelengths(path: Path, reports: Sequence[ModelReport]) -> None:
    """Save the wavelengths of each kind of layer of the text, as PNG or SVG."""
    lines: dict[str, Sequence[float]] = {}
    for report in reports:
        prefix = f"{Path(report.source).name}: " if len(reports) > 1 else ""
        for kind in _kinds(report):
            lines |= _lines(kind, prefix)
    if not lines:
        raise ValueError("--plot needs a model with a rope, got one without")
    dashed = [name for name in lines if name.endswith(_WITHOUT)]
    wavelengths_by_pair(lines, _contexts(reports), dashed=dashed).save(path)


def _kinds(report: ModelReport) -> list[LayerKind]:
    rotating = [kind for kind in report.kinds if kind.rope is not None]
    return [kind for kind in rotating if kind.stack == "text"] or rotating


def _lines(kind: LayerKind, prefix: str) -> dict[str, Sequence[float]]:
    """Return wavelengths by the name of the line; with a rule, those without it come first."""
    rope = kind.rope
    assert rope is not None
    layers = ", ".join(kind.layer_types) or f"layers {ranges(kind.layers)}"
    name = f"{prefix}{kind.stack}, {layers}"
    if rope.plain_wavelengths == rope.wavelengths:
        return {name: rope.wavelengths}
    return {f"{name}{_WITHOUT}": rope.plain_wavelengths, f"{name}, {rope.rule}": rope.wavelengths}


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
