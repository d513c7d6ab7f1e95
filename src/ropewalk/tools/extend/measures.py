"""Numbers of a rule: wavelengths, angles that training never reached, scores by distance."""

from __future__ import annotations

import math

import torch

from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.extend.facts import Numbers
from ropewalk.tools.inspect.rope_facts import LayerKind, length_for, wavelengths, without_rule

NEAR = 16  # a near distance, in tokens
POINTS = 48  # distances on the logarithmic grid
ROUNDING = 1e-9  # a pair that is divided by exactly the factor stays within the angles of training


def numbers(kind: LayerKind, after: RotarySpec, original: int, to: int) -> Numbers:
    """Return the numbers of one rope. after: the rope with the rule."""
    before = without_rule(after)
    plain, ruled = wavelengths(before, None), wavelengths(after, to)
    leaving = leaving_pairs(plain, ruled, original, to)
    distances = distance_grid(original, to)
    return Numbers(
        layers=kind.layers,
        layer_types=kind.layer_types,
        theta=after.theta,
        wavelengths_before=plain,
        wavelengths_after=ruled,
        growth=tuple(b / a if a < math.inf else 1.0 for a, b in zip(plain, ruled, strict=True)),
        leaving=leaving,
        share_leaving=len(leaving) / len(plain),
        amplitude=after.amplitude_at(length_for(after, to)),
        distances=distances,
        score_before=mean_scores(before, distances, to),
        score_after=mean_scores(after, distances, to),
    )


def leaving_pairs(
    plain: tuple[float, ...], ruled: tuple[float, ...], original: int, to: int
) -> tuple[int, ...]:
    """Return the pairs that reach angles beyond those in training.

    In training, pair i reached original / plain[i] turns; now it reaches to / ruled[i].
    """
    found = []
    for pair, (before, after) in enumerate(zip(plain, ruled, strict=True)):
        seen, needed = original / before, to / after
        if seen < 1 and needed > seen * (1 + ROUNDING):
            found.append(pair)
    return tuple(found)


def distance_grid(original: int, to: int) -> tuple[int, ...]:
    """Return distances from 1 to `to`, about equally far apart on a logarithmic axis.

    A near distance and the original length are among them.
    """
    steps = (min(to, round(to ** (i / (POINTS - 1)))) for i in range(POINTS))
    return tuple(sorted({*steps, min(NEAR, to), original, to}))


def mean_scores(spec: RotarySpec, distances: tuple[int, ...], length: int) -> tuple[float, ...]:
    """Return the mean of cos(distance · f) over all pairs, at each distance."""
    frequencies = spec.inverse_frequencies(length_for(spec, length))
    angles = torch.tensor(distances, dtype=torch.float64)[:, None] * frequencies
    return tuple(angles.cos().mean(dim=1).tolist())
