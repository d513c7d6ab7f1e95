"""Known mistakes, by the names that `ropewalk verify` has, and the results that each gives.

A mistake is another rope, other positions, or another use of the right numbers. Those that a case
cannot show, because they change nothing there, are left out. After a colon is what is in bfloat16,
if it is not all of positions, frequencies and their product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cases import Case
from formulas import Levels, Rope, levels, places, rotated
from mpmath import mpf
from scaling_formulas import scaled_frequencies

Rows = list[list[Any]]
Found = dict[str, Any]
"""Results by the fields of a vector; a field is absent if the mistake does not reach its level."""

OTHER_PAIRING = {"half": "interleaved", "interleaved": "half"}
DEFAULT = {"rope_type": "default"}


def traps(
    case: Case, at: Sequence[Any], right: Levels, q: Rows, k: Rows
) -> Iterator[tuple[str, Found]]:
    """Yield the mistakes of a case and their results, the commonest first."""
    rope = case.rope

    def other(changes: Rope, positions: Sequence[Any] = at) -> Found:
        return results(
            {**rope, **changes}, levels({**rope, **changes}, positions, case.length), q, k
        )

    if case.moved is not None:
        yield from _of_moved_keys(case, at, right, k)
        return
    flipped = {name: OTHER_PAIRING[rope[name]] for name in ("pairing", "write_pairing")}
    if rope["pairing"] != rope["write_pairing"]:
        flipped = dict.fromkeys(flipped, rope["pairing"])
    yield "pairing", other(flipped)
    yield "wrong-sign", other({"reverse": not rope["reverse"]})
    yield "theta", other({"theta": 10_000.0 if rope["theta"] != 10_000.0 else 500_000.0})
    yield "wrong-exponent", other({"axes": _halved_exponents(rope)})
    if rope["scaling"] != DEFAULT:
        yield "rule-ignored", other({"scaling": DEFAULT})
        yield "rule-applied-twice", _twice(rope, right, at, case.length, q, k)
    if right.factor != rope["amplitude"]:
        plain = [[[x / right.factor for x in row] for row in t] for t in (right.cos, right.sin)]
        no_factor = right._replace(factor=mpf(1), cos=plain[0], sin=plain[1])
        yield "amplitude", results(rope, no_factor, q, k)
    if rope["scaling"]["rope_type"] == "yarn":
        yield "frequencies", _blended_backwards(rope, right, at, case.length, q, k)
    if rope["axes"] is not None and len(at[0]) > 1:
        yield "frequencies", other({}, [row[::-1] for row in at])
    if rope["rotary_dim"] < rope["head_dim"]:
        last = rope["head_dim"] - rope["rotary_dim"]
        yield "rotary-part", other({"start": 0 if rope["start"] else last})
        if rope["axes"] is None and rope["scaling"] == DEFAULT:
            yield "partial-ignored", other({"rotary_dim": rope["head_dim"], "start": 0})
    yield from _of_positions(at, other)
    rounded = _rounded_angles(rope, right, at, q, k)
    yield "half-precision-angles", rounded
    coarse = [bfloat16(f) for f in right.frequencies]
    found = _with_frequencies(rope, right, coarse, at, q, k)
    yield "half-precision-angles:frequencies", found
    yield "half-precision-angles:tables", _tables(rope, right, *_coarse(rounded), q, k)
    exact = {"cos": right.cos, "sin": right.sin}
    yield "rounded-tables", _tables(rope, right, *_coarse(exact), q, k)
    yield "cos-sin-mixed", _tables(rope, right, right.sin, right.cos, q, k)
    yield "layouts-mixed", _both(lambda x: _layouts_mixed(rope, right, x), q, k)
    yield "overwritten-half", _both(lambda x: _overwritten(rope, right, x), q, k)
    yield "rotated-twice", _both(lambda x: rotated(rope, right, rotated(rope, right, x)), q, k)


def results(rope: Rope, found: Levels, q: Rows, k: Rows) -> Found:
    """Return all levels of a rope as a vector has them."""
    return {
        "inverse_frequencies": found.frequencies,
        "attention_factor": found.factor,
        "cos": found.cos,
        "sin": found.sin,
        **_both(lambda x: rotated(rope, found, x), q, k),
    }


def _both(rotate: Callable[[Rows], Rows], q: Rows, k: Rows) -> Found:
    return {"rotated_q": q and rotate(q), "rotated_k": k and rotate(k)}


def _tables(rope: Rope, right: Levels, cos: Rows, sin: Rows, q: Rows, k: Rows) -> Found:
    found = right._replace(cos=cos, sin=sin)
    return {"cos": cos, "sin": sin, **_both(lambda x: rotated(rope, found, x), q, k)}


def _coarse(found: Found) -> list[Rows]:
    """Return cos and sin in bfloat16."""
    return [[[bfloat16(x) for x in row] for row in found[name]] for name in ("cos", "sin")]


def _with_frequencies(
    rope: Rope, right: Levels, made: list[Any], at: Any, q: Rows, k: Rows
) -> Found:
    """Return all levels with these frequencies; the rope's own axes and factor stay."""
    axes = [0] * len(made) if rope["axes"] is None else [axis for axis, _, _ in rope["axes"]]
    rows = [row if isinstance(row, (list, tuple)) else [row] for row in at]
    angles = [[row[axis] * f for axis, f in zip(axes, made, strict=True)] for row in rows]
    found = right._replace(
        frequencies=made,
        cos=[[right.factor * _cos(a) for a in row] for row in angles],
        sin=[[right.factor * _sin(a) for a in row] for row in angles],
    )
    return results(rope, found, q, k)


def _cos(angle: Any) -> Any:
    return mpf(angle).context.cos(angle)


def _sin(angle: Any) -> Any:
    return mpf(angle).context.sin(angle)


def _halved_exponents(rope: Rope) -> list[list[int]]:
    """Return i/R in place of 2i/R, or of twice the divisor for several axes."""
    pairs = rope["rotary_dim"] // 2
    own = rope["axes"] or [[0, i, pairs] for i in range(pairs)]
    return [[axis, of, 2 * by] for axis, of, by in own]


def _plain(rope: Rope, length: int | None) -> list[Any]:
    exponents = None if rope["axes"] is None else [mpf(e) / of for _, e, of in rope["axes"]]
    made = scaled_frequencies(DEFAULT, rope["theta"], rope["rotary_dim"], length, exponents)
    return [-f for f in made] if rope["reverse"] else made


def _twice(rope: Rope, right: Levels, at: Any, length: int | None, q: Rows, k: Rows) -> Found:
    made = [f * f / p for f, p in zip(right.frequencies, _plain(rope, length), strict=True)]
    return _with_frequencies(rope, right, made, at, q, k)


def _blended_backwards(
    rope: Rope, right: Levels, at: Any, length: int | None, q: Rows, k: Rows
) -> Found:
    """YaRN that slows fast pairs and leaves slow ones as they are."""
    slowest = 1 / mpf(rope["scaling"]["factor"])
    made = [
        p * (1 + slowest - f / p)
        for f, p in zip(right.frequencies, _plain(rope, length), strict=True)
    ]
    return _with_frequencies(rope, right, made, at, q, k)


def _of_positions(at: Sequence[Any], other: Callable[..., Found]) -> Iterator[tuple[str, Found]]:
    """Yield what code gives that reads its table from the first row."""
    single = not isinstance(at[0], (list, tuple))
    first, rows = (at[0], at) if single else (None, ())
    plain = list(range(len(at)))
    if single and first and list(rows) == [first + i for i in plain]:
        yield "offset-ignored", other({}, plain)
    elif list(at) != plain:
        axes = 0 if single else len(at[0])
        yield "positions-ignored", other({}, plain if single else [[i] * axes for i in plain])


def _rounded_angles(rope: Rope, right: Levels, at: Any, q: Rows, k: Rows) -> Found:
    """Positions, frequencies and their products in bfloat16."""
    made = [bfloat16(f) for f in right.frequencies]
    axes = [0] * len(made) if rope["axes"] is None else [axis for axis, _, _ in rope["axes"]]
    rows = [row if isinstance(row, (list, tuple)) else [row] for row in at]
    angles = [
        [bfloat16(bfloat16(row[axis]) * f) for axis, f in zip(axes, made, strict=True)]
        for row in rows
    ]
    cos = [[right.factor * _cos(mpf(a)) for a in row] for row in angles]
    sin = [[right.factor * _sin(mpf(a)) for a in row] for row in angles]
    return {
        "inverse_frequencies": made,
        "attention_factor": right.factor,
        **_tables(rope, right, cos, sin, q, k),
    }


def bfloat16(x: Any) -> Any:
    """Return a number rounded to the 8 bits of bfloat16, to even."""
    if not x:
        return mpf(0)
    scale = mpf(2) ** (7 - math.frexp(float(x))[1] + 1)
    return mpf(round(mpf(x) * scale)) / scale


def _layouts_mixed(rope: Rope, right: Levels, vectors: Rows) -> Rows:
    """Halves rotate by tables that repeat for neighbors, or the other way round."""
    mixed, size = [list(map(mpf, x)) for x in vectors], rope["rotary_dim"]
    pairs = places(rope, rope["pairing"])
    writes = places(rope, rope["write_pairing"])
    for y, x, cos, sin in zip(mixed, vectors, right.cos, right.sin, strict=True):
        for (a, b), (c, d) in zip(pairs, writes, strict=True):
            i, j = ((p - rope["start"]) for p in (a, b))
            i, j = (
                (i // 2, j // 2)
                if rope["pairing"] == "half"
                else (i % (size // 2), j % (size // 2))
            )
            y[c], y[d] = x[a] * cos[i] - x[b] * sin[i], x[b] * cos[j] + x[a] * sin[j]
    return mixed


def _overwritten(rope: Rope, right: Levels, vectors: Rows) -> Rows:
    """The first of a pair is written before the second is computed from it."""
    found = [list(map(mpf, x)) for x in vectors]
    both = zip(places(rope, rope["pairing"]), places(rope, rope["write_pairing"]), strict=True)
    for y, x, cos, sin in zip(found, vectors, right.cos, right.sin, strict=True):
        for i, ((a, b), (c, d)) in enumerate(both := list(both)):
            y[c] = x[a] * cos[i] - x[b] * sin[i]
            y[d] = x[b] * cos[i] + y[c] * sin[i]
    return found


def _of_moved_keys(
    case: Case, at: Sequence[Any], right: Levels, k: Rows
) -> Iterator[tuple[str, Found]]:
    """Yield mistakes with keys that are rotated already; k is before any rotation."""
    assert case.moved is not None
    before = case.rope | case.moved[1]
    old = levels(before, case.moved[0], case.length)
    cached = rotated(before, old, k)
    yield "positions-ignored", {"rotated_k": cached}
    yield "rotated-twice", {"rotated_k": rotated(case.rope, right, cached)}
    if right.factor != 1:
        yield (
            "amplitude",
            {
                "rotated_k": [
                    [x * right.factor for x in row] for row in rotated(case.rope, right, k)
                ]
            },
        )
