"""Pictures of the numbers of `rotary_parts.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ropewalk.figures import Picture
from ropewalk.figures.drawing import Scheme, style, width_of
from ropewalk.figures.plot_data import short
from ropewalk.files import Facts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN = ("none", "sinusoidal", "learned")  # encodings that do not change attention


def pictures_of(results: Facts) -> dict[str, Picture]:
    """Return the pictures of the study by name."""
    return {"norms": norms_picture(results), "scores": scores_picture(results)}


def norms_picture(results: Facts) -> Picture:
    """Return each pair's share of its head's norm, first seed; panels for q and k of each rope."""
    ropes = {
        name: row["cells"][0]["norms"]
        for name, row in results["encodings"].items()
        if row["cells"] and "norms" in row["cells"][0]
    }
    shares = {
        name: {part: _shares(layers, part) for part in "qk"} for name, layers in ropes.items()
    }
    most = max(float(share.max()) for parts in shares.values() for share in parts.values())
    heads = {name: len(layers[0]["q"]) for name, layers in ropes.items()}

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(1.2 + 1.8 * len(ropes), 4.6)
        panels = figure.subplots(2, len(ropes), squeeze=False)
        for place, (name, parts) in enumerate(shares.items()):
            for axes, (part, share) in zip(panels[:, place], parts.items(), strict=True):
                image = scheme.heat_map(axes, share.tolist(), most, signed=False)
                long = name.replace(",", ",\n").replace("(", "(\n" if len(name) > 24 else "(")
                scheme.title(axes, f"{long}\n{part}" if part == "q" else part)
                for start in range(heads[name], len(share), heads[name]):
                    axes.axhline(start - 0.5, color=scheme.ink, linewidth=0.6)
                layers = range(len(share) // heads[name])
                middles = [heads[name] * (layer + 0.5) - 0.5 for layer in layers]
                axes.set_yticks(middles, [str(layer + 1) for layer in layers])
        panels[-1, 0].set_xlabel("pair")
        for axes in panels[:, 0]:
            axes.set_ylabel("layer")
        scheme.scale(figure, panels, image, "share of the head's norm")
        return figure

    largest = {
        n: [int(parts[part].mean(0).argmax()) for part in "qk"] for n, parts in shares.items()
    }
    told = [f"{name}, {q} for q and {k} for k" for name, (q, k) in largest.items()]
    alt = (
        f"Norm of queries and keys by pair, layer and head, as a share of the head's norm, up to "
        f"{short(most)}. Pair with the largest mean share, counted from 0: {'; '.join(told)}."
    )
    data = {name: {part: s.tolist() for part, s in parts.items()} for name, parts in shares.items()}
    return Picture(draw, alt, data)


def _shares(layers: list[Facts], part: str) -> torch.Tensor:
    """Return the norm of each pair as a share of its head's, (layers * heads, pairs)."""
    norms = torch.cat([torch.tensor(layer[part]) for layer in layers])
    total: torch.Tensor = norms.norm(dim=1, keepdim=True)
    return norms / total


def scores_picture(results: Facts) -> Picture:
    """Return the mean score by distance, less its mean over distances, a panel for each layer.

    Only ropes and encodings outside attention are drawn: for others, q and k alone do not make the
    score.
    """
    layers = range(results["config"]["layers"])
    curves = {
        name: [_centered(row["cells"], layer) for layer in layers]
        for name, row in results["encodings"].items()
        if row["cells"] and ("norms" in row["cells"][0] or name in PLAIN)
    }

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(2.9 * len(layers) + width_of(curves), 3.2)
        panels = figure.subplots(1, len(layers), squeeze=False)[0]
        for layer, axes in enumerate(panels):
            for place, (name, held) in enumerate(curves.items()):
                look = style(place)
                axes.plot(
                    held[layer], look.line, color=look.color, marker=look.marker, markevery=8,
                    markersize=4, linewidth=1, label=name,
                )  # fmt: skip
            scheme.title(axes, f"layer {layer + 1}")
            axes.set_xlabel("distance in tokens")
            scheme.calm(axes)
        panels[0].set_ylabel("mean score, less its own mean")
        scheme.names_beside(figure, panels)
        return figure

    told = [
        f"{name}, " + ", ".join(f"{short(held[0])} to {short(held[-1])}" for held in by_layer)
        for name, by_layer in curves.items()
    ]
    last = len(next(iter(curves.values()))[0]) - 1
    alt = (
        "Mean score by distance in tokens, less its own mean, a panel for each layer. From "
        f"distance 0 to {last}, layer after layer: {'; '.join(told)}."
    )
    return Picture(draw, alt, {"scores": curves})


def _centered(cells: list[Facts], layer: int) -> list[float]:
    """Return a layer's mean score by distance over seeds, less its mean over distances."""
    curves = torch.tensor([cell["scores"][layer] for cell in cells])
    centered: list[float] = (curves.mean(0) - curves.mean()).tolist()
    return centered
