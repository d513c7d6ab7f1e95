"""The picture of `usage`: how much of each head's norm each pair has."""

from __future__ import annotations

from pathlib import Path

from ropewalk.figures.picture import Picture
from ropewalk.figures.wavelength_pictures import frequency_usage
from ropewalk.tools.usage.facts import Layer, Norms, Usage

Table = list[list[float]]


def usage_picture(found: Usage) -> Picture:
    """Return the shares of the squared norm by head and pair, for queries and for keys.

    Layers with other wavelengths, or with other numbers of heads, have panels of their own.
    """
    groups: dict[tuple[object, ...], list[Layer]] = {}
    for layer in found.layers:
        key = tuple(layer.wavelengths), len(layer.q_norms), len(layer.k_norms)
        groups.setdefault(key, []).append(layer)
    norms: dict[str, Table] = {}
    waves: dict[str, tuple[float, ...]] = {}
    heads: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    for place, layers in enumerate(groups.values(), 1):
        of = f", rope {place}" if len(groups) > 1 else ""
        for name, held in (
            (f"queries{of}", [each.q_norms for each in layers]),
            (f"keys{of}", [each.k_norms for each in layers]),
        ):
            if held[0]:
                norms[name] = [head for each in held for head in _without_zeros(each)]
                waves[name] = layers[0].wavelengths
                heads[name] = len(held[0])
                numbers[name] = [layer.layer for layer in layers]
    contexts = {f"window {found.length:,}": found.length}
    return frequency_usage(norms, waves, contexts, heads_per_layer=heads, layers=numbers)


def save_usage(path: Path, found: Usage) -> None:
    """Save the picture as PNG or SVG."""
    usage_picture(found).save(path)


def _without_zeros(norms: Norms) -> Table:
    """Return the norms of heads; a head that is 0 everywhere uses all pairs equally."""
    return [list(head) if any(head) else [1.0] * len(head) for head in norms]
