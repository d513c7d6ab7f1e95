"""Draw the pictures of the pages in docs/: `python docs/pictures.py` writes docs/pictures/*.svg.

Backgrounds are transparent, and axes and words are gray, so that a picture can be read on a light
and on a dark page. Colors are those of the reports. The same numbers give the same file: no date,
no version, and ids that depend on the content alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropewalk import RotarySpec, scaling
from ropewalk.figures.palette import COLORS

GRAY = "#808080"  # contrast at least 3.9 : 1 on white and on the dark pages of GitHub
LOOK = {
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "ropewalk",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), GRAY
    ),
}


def hands() -> Figure:
    """Draw each pair of a small rope as a hand that moves with the position."""
    spec = RotarySpec(head_dim=8, theta=100.0)
    positions = range(7)
    figure = Figure(figsize=(8.0, 2.3), layout="constrained")
    rows = zip(figure.subplots(1, spec.pairs), spec.inverse_frequencies().tolist(), strict=True)
    for pair, (axes, frequency) in enumerate(rows):
        circle = [2 * math.pi * step / 90 for step in range(91)]
        axes.plot([math.cos(a) for a in circle], [math.sin(a) for a in circle], color=GRAY, lw=0.8)
        for position in positions:
            x, y = math.cos(position * frequency), math.sin(position * frequency)
            fade = 0.4 + 0.6 * position / positions[-1]
            axes.plot((0, x), (0, y), color=COLORS[0], lw=1.8, alpha=fade)
            if position == positions[-1] or frequency > 0.9 or (position == 1 and pair == 1):
                axes.text(1.2 * x, 1.2 * y, str(position), ha="center", va="center", fontsize=8)
        axes.set_title(f"pair {pair}: {frequency:.3g} rad", fontsize=10)
        axes.set_aspect("equal")
        axes.set_xlim(-1.4, 1.4)
        axes.set_ylim(-1.4, 1.4)
        axes.axis("off")
    return figure


def wavelengths() -> Figure:
    """Draw the wavelength of every pair, and a context length across it."""
    figure, axes = _plot("pair i of R/2 = 64", "positions per full turn")
    for place, theta in enumerate((10_000.0, 500_000.0)):
        spec = RotarySpec(head_dim=128, theta=theta)
        axes.plot(spec.wavelengths(), color=COLORS[place], lw=2, label=f"theta = {theta:,.0f}")
    axes.axhline(8192, color=GRAY, ls="--", lw=1)
    axes.text(0, 8192 * 1.25, "context of 8,192 tokens")
    axes.set_yscale("log")
    axes.legend(frameon=False, loc="lower right")
    return figure


def score() -> Figure:
    """Draw the score of two equal vectors against their distance, with one pair and with all."""
    figure, axes = _plot("distance in positions", "share of the score at distance 0")
    distances = torch.arange(401, dtype=torch.float64)
    frequencies = RotarySpec(head_dim=128).inverse_frequencies()
    one = torch.cos(distances * 0.1)
    axes.plot(one, color=COLORS[1], lw=0.9, label="one frequency, 0.1 rad")
    every = torch.cos(distances[:, None] * frequencies).mean(dim=-1)
    axes.plot(every, color=COLORS[0], lw=2, label="64 frequencies, theta = 10,000")
    axes.set_ylim(-1.05, 1.5)
    axes.legend(frameon=False, loc="upper right", ncols=2)
    return figure


def rules() -> Figure:
    """Draw by how much each rule lengthens the wavelength of each pair."""
    figure, axes = _plot("pair i of R/2 = 64", "wavelength, × without a rule")
    plain = RotarySpec(head_dim=128, theta=500_000.0)
    chosen: tuple[scaling.Scaling, ...] = (
        scaling.Linear(8),
        scaling.NTKAware(8),
        scaling.YaRN(8, original_length=8192),
        scaling.Llama3(8, low_freq_factor=1, high_freq_factor=4, original_length=8192),
    )
    for place, rule in enumerate(chosen):
        ruled = RotarySpec(head_dim=128, theta=500_000.0, scaling=rule)
        ratio = ruled.wavelengths() / plain.wavelengths()
        axes.plot(ratio, color=COLORS[place], lw=2, label=type(rule).__name__)
    axes.set_ylim(0, 9)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.6))
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "hands": hands,
    "wavelengths": wavelengths,
    "score": score,
    "rules": rules,
}


def svg(name: str) -> str:
    """Return the picture of that name as SVG."""
    with rc_context(LOOK):
        text = io.StringIO()
        metadata = {"Date": None, "Creator": None}
        PICTURES[name]().savefig(text, format="svg", transparent=True, metadata=metadata)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _plot(x_title: str, y_title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    return figure, axes


if __name__ == "__main__":
    for name in PICTURES:
        path = Path(__file__).parent / "pictures" / f"{name}.svg"
        path.write_text(svg(name), encoding="utf-8")
        print(path)
