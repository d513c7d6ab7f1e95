"""Encoding texts for the fuzzer, as on the command line: names, arguments, sums."""

from __future__ import annotations

import inspect
import random

from ropewalk.encodings import REGISTRY

WHOLE = [
    "rotary(theta=1e6)",
    "learned(max_positions=40)+t5",
    "rotary(rule=yarn,factor=4,original_length=64)",
    "rotary(rule=longrope,short_factor=[1,1,1,1],long_factor=[2,2,2,2],original_length=8)",
    "rotary(pairing=interleaved,rotary_dim=4)",
    "xpos(both_ways=rotary)",
    "alibi+none",
    "tupe(relative=True,max_positions=8)",
    "rotary(cross=True)",
]
MORE = ["rule", "factor", "theta", "pairing", "rotary_dim", "original_length", "cross", "learned"]
NUMBERS = "0 1 2 3 4 8 16 64 -1 0.5 1.5 -0.0 1e-9 1e6 1e300 1e309 5e-324 2**40 1j 0x10 nan inf"
NAMES = "half yarn linear llama3 rotary alibi power head layer ntk dynamic proportional longrope x"
OTHERS = ["True", "False", "None", "[1,2]", "[]", "[1.0,1,1,1]", "(1,)", "{}", "'x'", "b'a'", "..."]
HUGE = [str(2**31), str(2**63), "9" * 500, "[" * 90 + "]" * 90, "-" * 300 + "1", "'\\ud800'", "1if"]
VALUES = [*NUMBERS.split(), *NAMES.split(), *OTHERS, *HUGE]


def encoding_text(draw: random.Random) -> bytes:
    """Draw an encoding's text: existing names with possible arguments."""
    if draw.random() < 0.2:
        return draw.choice(WHOLE).encode()
    count = draw.choice((1, 1, 1, 2, 3))
    return "+".join(_call(draw) for _ in range(count)).encode("utf-8", "surrogatepass")


def _call(draw: random.Random) -> str:
    name = draw.choice(sorted(REGISTRY))
    known = [each for each in inspect.signature(REGISTRY[name]).parameters if each != "shape"]
    names = draw.sample([*known, *MORE], draw.choice((0, 1, 1, 2, 3)))
    if not names:
        return name
    return f"{name}({','.join(f'{each}={draw.choice(VALUES)}' for each in names)})"
