"""The picture of `extend`: wavelengths of each pair under each rule."""

from __future__ import annotations

from pathlib import Path

from ropewalk.figures.wavelength_pictures import wavelengths_by_pair
from ropewalk.tools.extend.facts import Extension


def save_rules(path: Path, found: Extension) -> None:
    """Save the wavelengths of the first rope under each rule, as PNG or SVG."""
    lines = {
        each.method: each.numbers[0].wavelengths_after
        for each in found.results
        if each.numbers and not each.refused
    }
    contexts = {
        f"original context {found.original_length:,}": found.original_length,
        f"new context {found.to:,}": found.to,
    }
    dashed = [name for name in lines if name == "none"]
    wavelengths_by_pair(lines, contexts, dashed=dashed).save(path)
