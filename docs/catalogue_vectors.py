"""The test vectors of the catalogue: every kind of rope, rotated with 60 digits.

This file uses mpmath and nothing of ropewalk. It follows the formulas of the papers and reads a
rope as vectors.json has it, so it also shows that the JSON says all that a rotation needs.
`python docs/catalogue.py` writes the file.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import mpmath
from catalogue_cases import CASES, ORIGINAL, PLAIN, Case, Spec
from mpmath import mpf

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
    R, theta, rule = spec["rotary_dim"], mpf(spec["theta"]), spec["scaling"]
    exponents = [mpf(2 * i) / R for i in range(R // 2)]
    if spec["axes"] is not None:
        exponents = [mpf(e) / of for _, e, of in spec["axes"]]
    made = RULES[rule["rope_type"]](rule, theta, exponents, R, length)
    return [-f for f in made] if spec["reverse"] else made


def _plain(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    return [theta**-e for e in exponents]


def _linear(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2306.15595, eq. 3."""
    return [theta**-e / mpf(rule["factor"]) for e in exponents]


def _dynamic(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 15 and 16; without alpha, s grows as in transformers."""
    s = mpf(rule.get("alpha", rule["factor"]))
    if "alpha" not in rule:
        s = s * max(length or 0, rule[ORIGINAL]) / rule[ORIGINAL] - (s - 1)
    return [(theta * s ** (mpf(R) / (R - 2))) ** -e for e in exponents]


def _yarn(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 17 to 20, with the band as jquesnelle/yarn finds it."""

    def pair(rotations: float) -> Any:
        within = mpf(rule[ORIGINAL]) / (2 * mpmath.pi * mpf(rotations))
        return R * mpmath.log(within) / (2 * mpmath.log(theta))

    low, high = pair(rule.get("beta_fast", 32.0)), pair(rule.get("beta_slow", 1.0))
    if rule.get("truncate", True):
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    blended = []
    for e in exponents:
        slow = min(max((e * R / 2 - low) / (high - low), 0), 1)
        blended.append(theta**-e * (1 - slow + slow / mpf(rule["factor"])))
    return blended


def _longrope(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2402.13753; modeling_phi3.py: the long list beyond the original length."""
    divisors = rule["long_factor" if (length or 0) > rule[ORIGINAL] else "short_factor"]
    return [theta**-e / mpf(by) for e, by in zip(exponents, divisors, strict=True)]


def _llama3(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """meta-llama/llama-models, apply_scaling."""
    low, high = mpf(rule["low_freq_factor"]), mpf(rule["high_freq_factor"])
    scaled = []
    for e in exponents:
        rotations = rule[ORIGINAL] * theta**-e / (2 * mpmath.pi)
        smooth = min(max((rotations - low) / (high - low), 0), 1)
        scaled.append(theta**-e * ((1 - smooth) / mpf(rule["factor"]) + smooth))
    return scaled


def _proportional(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2410.06205, section 5; Gemma 4."""
    count = int(rule["partial_rotary_factor"] * R // 2)
    moved = [theta**-e / mpf(rule["factor"]) for e in exponents[:count]]
    return moved + [mpf(0)] * (R // 2 - count)


RULES = {"default": _plain, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn,
         "longrope": _longrope, "llama3": _llama3, "proportional": _proportional}  # fmt: skip


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
