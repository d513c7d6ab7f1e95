"""The test vectors of the catalogue: every kind of rope, rotated with 60 digits.

This file uses mpmath and nothing of ropewalk. It follows the formulas of the papers and reads a
rope as vectors.json has it, so it also shows that the JSON says all that a rotation needs.
`python docs/catalogue.py` writes the file.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import mpmath
from catalogue_cases import CASES, ORIGINAL, PLAIN, Case, Spec
from mpmath import mpf

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from scaling_formulas import scaled_frequencies

DIGITS = 60


def vectors() -> dict[str, Any]:
    """Return all test vectors by name, as vectors.json has them."""
    return {name: _vector(case, PLAIN | case.fields) for name, case in CASES.items()}


def _vector(case: Case, spec: Spec) -> dict[str, Any]:
    by_token = case.positions
    if spec["axes"] is not None:
        by_token = [list(position) for position in zip(*case.positions, strict=True)]
    facts = {"what": case.what, "axes": case.axes, "spec": spec}
    facts |= {"positions": case.positions, "length": case.length}
    heads = {name: _head(spec["head_dim"], len(by_token), *seed) for name, seed in SEEDS.items()}
    facts |= heads
    for name, head in heads.items():
        facts[f"rotated_{name}"] = [
            rotated(x, at, spec, case.length) for x, at in zip(head, by_token, strict=True)
        ]
    return facts


SEEDS = {"q": (5, 3), "k": (11, 6)}


def _head(head_dim: int, tokens: int, step: int, first: int) -> list[list[float]]:
    """Return numbers that binary floats represent exactly; those of a token all differ."""
    return [
        [
            ((step * (d + s) + first) % 16 + 1) / 8 * (-1 if (d + 2 * s) % 3 == 0 else 1)
            for d in range(head_dim)
        ]
        for s in range(tokens)
    ]


def rotated(x: list[float], position: Any, spec: Spec, length: int | None) -> list[str]:
    """Return a head rotated at a position, or at one for each axis: 17 digits.

    Pair (x1, x2) becomes (x1·cos φ - x2·sin φ, x2·cos φ + x1·sin φ), times the amplitude.
    Source: RoFormer, arXiv 2104.09864, eq. 34.
    """
    with mpmath.workdps(DIGITS):
        y = [mpf(value) for value in x]
        axes = [0] * (spec["rotary_dim"] // 2)
        if spec["axes"] is not None:
            axes = [axis for axis, _, _ in spec["axes"]]
        where = position if isinstance(position, list) else [position]
        scale = mpf(spec["amplitude"]) * amplitude(spec["scaling"], length)
        places = zip(_places(spec, spec["pairing"]), _places(spec, spec["write_pairing"]),
                     axes, frequencies(spec, length), strict=True)  # fmt: skip
        for (a, b), (c, d), axis, frequency in places:
            cos, sin = mpmath.cos_sin(where[axis] * frequency)
            y[c] = scale * (x[a] * cos - x[b] * sin)
            y[d] = scale * (x[b] * cos + x[a] * sin)
        return [f"{Decimal(mpmath.nstr(value, 40)):.17g}" for value in y]


def _places(spec: Spec, pairing: str) -> list[tuple[int, int]]:
    """Return the two dimensions of each pair."""
    places, start = [], spec["start"]
    for size in spec["blocks"] or [spec["rotary_dim"]]:
        half = size // 2
        for i in range(half):
            pair = (i, i + half) if pairing == "half" else (2 * i, 2 * i + 1)
            places.append((start + pair[0], start + pair[1]))
        start += size
    return places


def frequencies(spec: Spec, length: int | None) -> list[Any]:
    """Return the radians per position of each pair: theta^-e, changed by the rule."""
    exponents = None if spec["axes"] is None else [mpf(e) / of for _, e, of in spec["axes"]]
    made = scaled_frequencies(spec["scaling"], spec["theta"], spec["rotary_dim"], length, exponents)
    return [-f for f in made] if spec["reverse"] else made


def amplitude(rule: Any, length: int | None) -> Any:
    """Return the factor of cos and sin that a rule has."""
    if rule["rope_type"] == "longrope":  # arXiv 2402.13753, section 3.2
        return mpmath.sqrt(1 + mpmath.log(rule["factor"]) / mpmath.log(rule[ORIGINAL]))
    if rule["rope_type"] != "yarn":
        return mpf(1)
    if "attention_factor" in rule:
        return mpf(rule["attention_factor"])

    def m(k: float) -> Any:  # arXiv 2309.00071, eq. 22; DeepSeek-V2's mscale
        return 1 + mpf("0.1") * mpf(k) * mpmath.log(rule["factor"])

    return m(rule["mscale"]) / m(rule["mscale_all_dim"]) if "mscale" in rule else m(1)
