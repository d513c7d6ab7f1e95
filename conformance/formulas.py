"""What a rope does, from the formulas of its sources, with 60 digits: mpmath, nothing of ropewalk.

A rope is a dictionary as the vector files have it: `PLAIN` lists its fields. Level 1 is
frequencies and the attention factor, level 2 cos and sin, level 3 rotated vectors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
from mpmath import mpf
from scaling_formulas import ORIGINAL, scaled_frequencies

DIGITS = 60
Rope = dict[str, Any]

PLAIN: Rope = {
    "head_dim": 16,
    "rotary_dim": 16,
    "start": 0,
    "theta": 10000.0,
    "pairing": "half",
    "write_pairing": "half",
    "scaling": {"rope_type": "default"},
    "amplitude": 1.0,
    "reverse": False,
    "axes": None,  # or for each pair [axis, a, b], whose frequency is theta^(-a/b)
    "blocks": None,  # or the sizes of blocks within which pairs are made
    "continuous": False,
}


class Levels(NamedTuple):
    """The numbers of a rope at positions.

    frequencies: (R/2,), radians per position. factor: of cos and sin. cos, sin: (S, R/2), with the
    factor. rotate: see `rotated`.
    """

    frequencies: list[Any]
    factor: Any
    cos: list[list[Any]]
    sin: list[list[Any]]


def levels(
    rope: Rope,
    positions: Sequence[Any],
    length: int | None,
    own: list[Any] | None = None,
    angle: Callable[[Any, Any], Any] = operator.mul,
) -> Levels:
    """Return the first two levels. positions: of each token, a list of them for several axes.

    own: frequencies in place of the rope's. angle: of a position and a frequency.
    """
    found = frequencies(rope, length) if own is None else own
    factor = mpf(rope["amplitude"]) * attention_factor(rope["scaling"], length)
    axes = [0] * len(found) if rope["axes"] is None else [axis for axis, _, _ in rope["axes"]]
    angles = []
    for position in positions:
        at = position if isinstance(position, (list, tuple)) else [position]
        angles.append([angle(mpf(at[axis]), f) for axis, f in zip(axes, found, strict=True)])
    cos = [[factor * mpmath.cos(a) for a in row] for row in angles]
    sin = [[factor * mpmath.sin(a) for a in row] for row in angles]
    return Levels(found, factor, cos, sin)


def turn(a: Any, b: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """Return a pair rotated. Source: RoFormer, arXiv 2104.09864, eq. 34."""
    return a * cos - b * sin, b * cos + a * sin


def rotated(
    rope: Rope,
    found: Levels,
    vectors: Sequence[Sequence[Any]],
    turn: Callable[[Any, Any, Any, Any], tuple[Any, Any]] = turn,
) -> list[list[Any]]:
    """Return vectors (S, D) with each pair turned."""
    reads, writes = places(rope, rope["pairing"]), places(rope, rope["write_pairing"])
    result = []
    for x, cos, sin in zip(vectors, found.cos, found.sin, strict=True):
        y = [mpf(value) for value in x]
        for (a, b), (c, d), co, si in zip(reads, writes, cos, sin, strict=True):
            y[c], y[d] = turn(x[a], x[b], co, si)
        result.append(y)
    return result


def places(rope: Rope, pairing: str) -> list[tuple[int, int]]:
    """Return the two dimensions of each pair."""
    found, start = [], rope["start"]
    for size in rope["blocks"] or [rope["rotary_dim"]]:
        half = size // 2
        for i in range(half):
            pair = (i, i + half) if pairing == "half" else (2 * i, 2 * i + 1)
            found.append((start + pair[0], start + pair[1]))
        start += size
    return found


def frequencies(rope: Rope, length: int | None) -> list[Any]:
    """Return the radians per position of each pair: theta^-e, changed by the rule."""
    exponents = None if rope["axes"] is None else [mpf(e) / of for _, e, of in rope["axes"]]
    made = scaled_frequencies(rope["scaling"], rope["theta"], rope["rotary_dim"], length, exponents)
    return [-f for f in made] if rope["reverse"] else made


def attention_factor(rule: Any, length: int | None) -> Any:
    """Return the factor of cos and sin that a rule has.

    Sources: YaRN, arXiv 2309.00071, eq. 22, with DeepSeek-V2's mscale; LongRoPE, arXiv 2402.13753.
    """
    if rule["rope_type"] == "longrope":
        return mpmath.sqrt(1 + mpmath.log(rule["factor"]) / mpmath.log(rule[ORIGINAL]))
    if rule["rope_type"] != "yarn":
        return mpf(1)
    if rule.get("attention_factor") is not None:
        return mpf(rule["attention_factor"])

    def m(k: float) -> Any:
        return 1 + mpf("0.1") * mpf(k) * mpmath.log(rule["factor"])

    both = rule.get("mscale") and rule.get("mscale_all_dim")
    return m(rule["mscale"]) / m(rule["mscale_all_dim"]) if both else m(1)
