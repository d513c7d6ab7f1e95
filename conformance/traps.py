"""Known mistakes, by the names that `ropewalk verify` has, and the results that each gives.

A mistake is another rope, other positions, or another use of the right numbers. Those that a case
cannot show, because they change nothing there, are left out. After a colon is what is in bfloat16,
if it is not all of positions, frequencies and their product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from formulas import Levels, Rope, frequencies, levels, places, rotated
from mpmath import mpf

Rows = list[list[Any]]
Found = dict[str, Any]
"""Results by the fields of a vector; a field is absent if the mistake does not reach its level."""

OTHER_PAIRING = {"half": "interleaved", "interleaved": "half"}
DEFAULT = {"rope_type": "default"}


class Asked(NamedTuple):
    """What a vector asks: a rope at positions, of q and k before any rotation, each (S, D).

    at: for each token its position, or a list with that on each axis. cached: the old positions and
    rope of keys that are rotated already.
    """

    rope: Rope
    at: list[Any]
    length: int | None
    q: Rows
    k: Rows
    cached: tuple[list[int], Rope] | None

    def right(self) -> Levels:
        """Return the numbers without a mistake."""
        return levels(self.rope, self.at, self.length)

    def of(self, found: Levels, rope: Rope | None = None) -> Found:
        """Return all levels of numbers that were found."""
        turned = self.rotated(lambda x: rotated(rope or self.rope, found, x))
        names = ("inverse_frequencies", "attention_factor", "cos", "sin")
        return dict(zip(names, found, strict=True)) | turned

    def other(self, changes: Rope, at: list[Any] | None = None) -> Found:
        """Return all levels of another rope, or at other positions."""
        rope = self.rope | changes
        return self.of(levels(rope, at or self.at, self.length), rope)

    def tables(self, right: Levels, cos: Rows, sin: Rows) -> Found:
        """Return the levels that other tables change."""
        found = self.of(right._replace(cos=cos, sin=sin))
        return {name: found[name] for name in ("cos", "sin", "rotated_q", "rotated_k")}

    def rotated(self, rotate: Callable[[Rows], Rows]) -> Found:
        """Return the level that another rotation changes."""
        return {"rotated_q": self.q and rotate(self.q), "rotated_k": self.k and rotate(self.k)}


def traps(asked: Asked, right: Levels) -> Iterator[tuple[str, Found]]:
    """Yield the mistakes of a vector and their results, the commonest first."""
    rope, at, length = asked.rope, asked.at, asked.length
    if asked.cached is not None:
        yield from _of_moved_keys(asked, right, *asked.cached)
        return
    flipped = rope["pairing"]
    if flipped == rope["write_pairing"]:
        flipped = OTHER_PAIRING[flipped]
    yield "pairing", asked.other({"pairing": flipped, "write_pairing": flipped})
    yield "wrong-sign", asked.other({"reverse": not rope["reverse"]})
    yield "theta", asked.other({"theta": 10_000.0 if rope["theta"] != 10_000.0 else 500_000.0})
    yield "wrong-exponent", asked.other({"axes": _halved_exponents(rope)})
    plain = frequencies(rope | {"scaling": DEFAULT}, length)
    changed = list(zip(right.frequencies, plain, strict=True))
    if rope["scaling"] != DEFAULT:
        yield "rule-ignored", asked.other({"scaling": DEFAULT})
        yield (
            "rule-applied-twice",
            asked.of(levels(rope, at, length, [f * f / p for f, p in changed])),
        )
    if right.factor != rope["amplitude"]:
        cos, sin = ([[x / right.factor for x in row] for row in t] for t in (right.cos, right.sin))
        yield "amplitude", asked.of(right._replace(factor=mpf(1), cos=cos, sin=sin))
    if rope["scaling"]["rope_type"] == "yarn":  # fast pairs slow down, slow ones stay
        slowest = 1 / mpf(rope["scaling"]["factor"])
        backwards = [p * (1 + slowest - f / p) for f, p in changed]
        yield "frequencies", asked.of(levels(rope, at, length, backwards))
    if rope["axes"] is not None and len(at[0]) > 1:
        yield "frequencies", asked.other({}, [row[::-1] for row in at])
    if rope["rotary_dim"] < rope["head_dim"]:
        last = rope["head_dim"] - rope["rotary_dim"]
        yield "rotary-part", asked.other({"start": 0 if rope["start"] else last})
        if rope["axes"] is None and rope["scaling"] == DEFAULT:
            yield "partial-ignored", asked.other({"rotary_dim": rope["head_dim"], "start": 0})
    yield from _of_positions(asked)
    coarse = [bfloat16(f) for f in right.frequencies]
    rounded = levels(rope, at, length, coarse, lambda p, f: bfloat16(bfloat16(p) * f))
    yield "half-precision-angles", asked.of(rounded)
    yield "half-precision-angles:frequencies", asked.of(levels(rope, at, length, coarse))
    yield "half-precision-angles:tables", asked.tables(right, *_coarse(rounded))
    yield "rounded-tables", asked.tables(right, *_coarse(right))
    yield "cos-sin-mixed", asked.tables(right, right.sin, right.cos)
    yield "layouts-mixed", asked.rotated(lambda x: _layouts_mixed(rope, right, x))
    yield "overwritten-half", asked.rotated(lambda x: rotated(rope, right, x, _overwritten))
    yield "rotated-twice", asked.rotated(lambda x: rotated(rope, right, rotated(rope, right, x)))


def _halved_exponents(rope: Rope) -> list[list[int]]:
    """Return i/R in place of 2i/R, or of twice the divisor for several axes."""
    pairs = rope["rotary_dim"] // 2
    own = rope["axes"] or [[0, i, pairs] for i in range(pairs)]
    return [[axis, of, 2 * by] for axis, of, by in own]


def _of_positions(asked: Asked) -> Iterator[tuple[str, Found]]:
    """Yield what code gives that reads its table from the first row."""
    at = asked.at
    rows: list[Any] = list(range(len(at)))
    if isinstance(at[0], list):
        rows = [[i] * len(at[0]) for i in rows]
    elif at[0] and at == [at[0] + i for i in rows]:
        yield "offset-ignored", asked.other({}, rows)
        return
    if at != rows:
        yield "positions-ignored", asked.other({}, rows)


def _coarse(found: Levels) -> list[Rows]:
    """Return cos and sin in bfloat16."""
    return [[[bfloat16(x) for x in row] for row in table] for table in (found.cos, found.sin)]


def bfloat16(x: Any) -> Any:
    """Return a number rounded to the 8 bits of bfloat16, to even."""
    if not x:
        return mpf(0)
    scale = mpf(2) ** (7 - math.frexp(float(x))[1] + 1)
    return mpf(round(mpf(x) * scale)) / scale


def _layouts_mixed(rope: Rope, right: Levels, vectors: Rows) -> Rows:
    """Halves rotate by tables that repeat for neighbors, or the other way round."""
    half = rope["rotary_dim"] // 2

    def column(place: int) -> int:
        place -= rope["start"]
        return place // 2 if rope["pairing"] == "half" else place % half

    mixed = [list(map(mpf, x)) for x in vectors]
    both = list(zip(*(places(rope, rope[n]) for n in ("pairing", "write_pairing")), strict=True))
    for y, x, cos, sin in zip(mixed, vectors, right.cos, right.sin, strict=True):
        for (a, b), (c, d) in both:
            i, j = column(a), column(b)
            y[c], y[d] = x[a] * cos[i] - x[b] * sin[i], x[b] * cos[j] + x[a] * sin[j]
    return mixed


def _overwritten(a: Any, b: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """The first of a pair is written before the second is computed from it."""
    first = a * cos - b * sin
    return first, b * cos + first * sin


def _of_moved_keys(
    asked: Asked, right: Levels, positions: list[int], before: Rope
) -> Iterator[tuple[str, Found]]:
    """Yield mistakes with keys that are rotated already."""
    cached = rotated(before, levels(before, positions, asked.length), asked.k)
    yield "positions-ignored", {"rotated_k": cached}
    yield "rotated-twice", {"rotated_k": rotated(asked.rope, right, cached)}
    if right.factor != 1:
        moved = rotated(asked.rope, right, asked.k)
        yield "amplitude", {"rotated_k": [[x * right.factor for x in row] for row in moved]}
