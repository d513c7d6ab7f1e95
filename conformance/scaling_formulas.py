"""The frequencies of every scaling rule, written from their sources, in mpmath.

Tests, benchmarks and the catalogue's test vectors compare with them; nothing of ropewalk is used.
Rules are fields of a config.json. Call them within `mpmath.workdps`.
"""

from __future__ import annotations

from typing import Any

import mpmath
from mpmath import mpf

ORIGINAL = "original_max_position_embeddings"


def scaled_frequencies(
    rule: Any, theta: float, rotary_dim: int, length: int | None, exponents: list[Any] | None = None
) -> list[Any]:
    """Return the radians per position of each pair: theta^-e, changed by the rule.

    exponents: e of each pair; None: 2i/R, as in the RoFormer paper, arXiv 2104.09864, eq. 15.
    """
    if exponents is None:
        exponents = [mpf(2 * i) / rotary_dim for i in range(rotary_dim // 2)]
    return RULES[rule["rope_type"]](rule, mpf(theta), exponents, rotary_dim, length)


def _plain(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    return [theta**-e for e in exponents]


def _linear(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2306.15595, eq. 3."""
    return [theta**-e / mpf(rule["factor"]) for e in exponents]


def _dynamic(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 15 and 16; without alpha, s grows as in transformers or Qwen-1."""
    s = mpf(rule.get("alpha", rule.get("factor", 1)))
    if "seq_length" in rule:  # modeling_qwen.py, get_ntk_alpha
        doublings = mpmath.ceil(mpmath.log(mpf(max(length or 0, 1)) / rule["seq_length"], 2))
        s = max(2 ** (doublings + 1) - 1, mpf(1))
    elif "alpha" not in rule:
        s = s * max(length or 0, rule[ORIGINAL]) / rule[ORIGINAL] - (s - 1)
    return [(theta * s ** (mpf(R) / (R - 2))) ** -e for e in exponents]


def _ntk(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """kexue.fm/archives/9706, eq. 10, 12 and 13, as Alibaba-NLP/new-impl, modeling.py, has them."""
    b = mpf(rule.get("mixed_b", 1.0))
    a = mpmath.log(mpf(rule["factor"])) / (mpf(R) / 2) ** b
    return [theta**-e / mpmath.exp(a * (e * R / 2 + 1) ** b) for e in exponents]


def _yarn(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 17 to 20, with the band as jquesnelle/yarn finds it."""

    def pair(rotations: float) -> Any:
        within = mpf(rule[ORIGINAL]) / (2 * mpmath.pi * mpf(rotations))
        return R * mpmath.log(within) / (2 * mpmath.log(theta))

    low, high = pair(rule.get("beta_fast", 32.0)), pair(rule.get("beta_slow", 1.0))
    if rule.get("truncate", True):
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    high += mpf("0.001") if low == high else 0
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
        band = high - low or mpf("1e-50")  # without a band, a step
        smooth = min(max((rotations - low) / band, 0), 1)
        scaled.append(theta**-e * ((1 - smooth) / mpf(rule["factor"]) + smooth))
    return scaled


def _proportional(rule: Any, theta: Any, exponents: Any, R: int, length: int | None) -> list[Any]:
    """arXiv 2410.06205, section 5; Gemma 4."""
    count = int(rule["partial_rotary_factor"] * R // 2)
    moved = [theta**-e / mpf(rule["factor"]) for e in exponents[:count]]
    return moved + [mpf(0)] * (R // 2 - count)


RULES = {"default": _plain, "linear": _linear, "ntk": _ntk, "dynamic": _dynamic, "yarn": _yarn,
         "longrope": _longrope, "llama3": _llama3, "proportional": _proportional}  # fmt: skip
