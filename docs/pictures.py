"""Draw the pictures of the pages in docs/: `python docs/pictures.py` writes docs/pictures/*.svg.

Each picture is drawn for light and for dark pages. The same numbers give the same file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ropewalk import RotarySpec, figures, scaling

FOLDER = Path(__file__).parent / "pictures"
RESULTS = Path(__file__).parents[1] / "results"


def hands() -> figures.Picture:
    """Draw each pair of a small rope as a hand that moves with the position."""
    spec = RotarySpec(head_dim=8, theta=100.0)
    return figures.pair_planes(spec.inverse_frequencies(), positions=range(7))


def wavelengths() -> figures.Picture:
    """Draw the wavelength of every pair, and a context length across it."""
    ropes = {
        f"theta = {theta:,}": RotarySpec(head_dim=128, theta=float(theta)).wavelengths()
        for theta in (10_000, 500_000)
    }
    return figures.wavelengths_by_pair(ropes, {"context of 8,192 tokens": 8192})


def score() -> figures.Picture:
    """Draw the score of two equal vectors against their distance, with one pair and with all."""
    frequencies = RotarySpec(head_dim=128).inverse_frequencies()
    return figures.score_by_distance(frequencies, range(401), pair=16)


def rules() -> figures.Picture:
    """Draw by how much each rule lengthens the wavelength of each pair."""
    chosen: tuple[scaling.Scaling | None, ...] = (
        None,
        scaling.Linear(8),
        scaling.NTKAware(8),
        scaling.YaRN(8, original_length=8192),
        scaling.Llama3(8, low_freq_factor=1, high_freq_factor=4, original_length=8192),
    )
    plain = "no rule"
    ropes = {
        type(rule).__name__ if rule else plain: RotarySpec(
            head_dim=128, theta=500_000.0, scaling=rule
        ).wavelengths()
        for rule in chosen
    }
    return figures.wavelengths_by_pair(ropes, dashed=[plain], relative_to=plain)


def usage() -> figures.Picture:
    """Draw which pairs the heads of a model trained here use, seed 1."""
    found = json.loads((RESULTS / "frequency-usage" / "results.json").read_text("utf-8"))
    layers = found["seeds"]["1"]["layers"]
    norms = {
        name: [head for layer in layers for head in layer[field]]
        for name, field in (("queries", "q_norms"), ("keys", "k_norms"))
    }
    heads = len(layers[0]["q_norms"])
    window = {"window 64": found["config"]["train_length"]}
    return figures.frequency_usage(norms, layers[0]["wavelengths"], window, heads_per_layer=heads)


PICTURES: dict[str, Callable[[], figures.Picture]] = {
    "hands": hands,
    "wavelengths": wavelengths,
    "score": score,
    "rules": rules,
    "usage": usage,
}


def svg(name: str) -> dict[str, str]:
    """Return the picture of that name as SVG, by the name of its file, light and dark."""
    return {file: content.decode("utf-8") for file, content in PICTURES[name]().both(name).items()}


if __name__ == "__main__":
    for name in PICTURES:
        for file, text in svg(name).items():
            (FOLDER / file).write_text(text, encoding="utf-8")
            print(FOLDER / file)
