"""Write the vectors: `python conformance/generate.py`. It takes mpmath, and nothing of ropewalk.

vectors/AREA.json is for programs, vectors/AREA.txt the same for code without a JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import mpmath
from cases import CASES, Case
from formulas import DIGITS, Levels, levels, places, rotated
from mpmath import mpf
from traps import Rows, results, traps

HOME = Path(__file__).parent
VERSION = 1
SEEDS = {"q": (5, 3), "k": (11, 6)}
#: How far a right result may be off. See README.md; the runners have the same numbers.
FREQUENCIES, TABLES, PRODUCT = mpf("4e-6"), mpf("1e-6"), mpf(8) / 2**24
ROUNDING = {"float32": mpf(2) ** -22, "bfloat16": mpf(2) ** -7, "float16": mpf(2) ** -10}
FIELDS = ("inverse_frequencies", "attention_factor", "cos", "sin", "rotated_q", "rotated_k")
LEVELS = (FIELDS[:2], FIELDS[2:4], FIELDS[4:])
#: What is asked of models, whose vectors are large; the others are in the other areas.
OF_MODELS = {
    "pairing", "theta", "rule-ignored", "amplitude", "rotary-part", "partial-ignored",
    "frequencies", "wrong-exponent", "offset-ignored", "positions-ignored", "half-precision-angles",
    "half-precision-angles:frequencies", "half-precision-angles:tables",
}  # fmt: skip


def vector(area: str, name: str, case: Case) -> dict[str, Any]:
    """Return one vector: the inputs of a case, the right numbers and those of mistakes."""
    rope, at = case.rope, case.positions
    if rope["axes"] is not None:
        at = [list(position) for position in zip(*case.positions, strict=True)]
    heads = {n: _head(rope["head_dim"], len(at), *seed) for n, seed in SEEDS.items()}
    q = [] if case.moved else heads["q"]
    k = [] if case.model else heads["k"]
    with mpmath.workdps(DIGITS):
        right = levels(rope, at, case.length)
        answer, cached = results(rope, right, q, k), None
        fields: dict[str, Any] = {"name": name, "area": area, "what": case.what}
        fields |= {"rope": rope, "order": case.axes}
        fields |= {"length": case.length, "dtype": case.dtype, "config": None, "layer": None}
        fields |= {key: case.model[key] for key in ("config", "layer") if case.model}
        fields |= {"positions": case.positions, "q": q, "k": k}
        if case.moved is not None:
            before = rope | case.moved[1]
            cached = {"positions": case.moved[0], "rope": before}
            fields["k"] = _exact(rotated(before, levels(before, case.moved[0], case.length), k))
            answer = {"rotated_k": answer["rotated_k"]}
        fields["cached"] = cached
        fields |= {key: _exact(answer.get(key, [])) for key in FIELDS}
        fields["traps"] = _separate(case, at, right, answer, q, k)
        return fields


def _separate(
    case: Case, at: Any, right: Levels, answer: dict[str, Any], q: Rows, k: Rows
) -> dict[str, dict[str, Any]]:
    """Return the mistakes whose results can be told from the right ones and from each other's."""
    kept: dict[str, dict[str, Any]] = {}
    for name, found in traps(case, at, right, q, k):
        if name in kept or (case.model and name not in OF_MODELS):
            continue
        own: dict[str, Any] = {}
        for level in LEVELS:
            given = {f: found[f] for f in level if found.get(f) and answer.get(f)}
            if any(len([*_flat(given[f])]) != len([*_flat(answer[f])]) for f in given):
                continue  # another number of pairs
            others = [answer, *(each for each in kept.values() if set(each) & set(given))]
            if given and all(distance(case, right, given, each, q, k) > 2 for each in others):
                own |= given
        if own:
            kept[name] = own
    # Keys rotate as queries do; and tables of wide heads would be most of the file.
    left_out = {"rotated_k"} if q else set()
    left_out |= {"cos", "sin"} if case.model else set()
    return {
        name: {
            f: _exact(own[f]) if f == "inverse_frequencies" else _short(own[f])
            for f in own
            if f not in left_out
        }
        for name, own in kept.items()
        if set(own) - left_out
    }


def distance(case: Case, right: Levels, one: Any, two: Any, q: Rows, k: Rows) -> float:
    """Return how far apart two results are, in units of what float32 angles may be off."""
    limits = bounds(case, right, q, k)
    apart = [0.0]
    for field in set(one) & set(two):
        three = zip(_flat(one[field]), _flat(two[field]), _flat(limits[field]), strict=True)
        apart += [float(abs(mpf(a) - mpf(b)) / limit) for a, b, limit in three]
    return max(apart)


def bounds(case: Case, right: Levels, q: Rows, k: Rows, *, angles: bool = True) -> dict[str, Any]:
    """Return how far each number may be off; angles: whether they may be products in float32."""
    rope, factor = case.rope, abs(right.factor)
    off = [
        [factor * (TABLES + (min(2, PRODUCT * abs(a)) if angles else 0)) for a in row]
        for row in right.angles
    ]
    limits: dict[str, Any] = {
        "inverse_frequencies": [FREQUENCIES * abs(f) + mpf("1e-30") for f in right.frequencies],
        "attention_factor": FREQUENCIES * factor,
        "cos": off,
        "sin": off,
    }
    for name, vectors in (("rotated_q", q), ("rotated_k", k)):
        rows = []
        for x, row in zip(vectors, off, strict=False):
            limit = [ROUNDING[case.dtype] * abs(mpf(value)) + mpf("1e-6") for value in x]
            for (a, b), (c, d), each in zip(
                places(rope, rope["pairing"]), places(rope, rope["write_pairing"]), row, strict=True
            ):
                size = abs(mpf(x[a])) + abs(mpf(x[b]))
                limit[c] = limit[d] = size * (each + ROUNDING[case.dtype] * factor)
            rows.append(limit)
        limits[name] = rows
    return limits


def _head(head_dim: int, tokens: int, step: int, first: int) -> list[list[float]]:
    """Return numbers that every binary format represents exactly; neighbors differ."""
    return [
        [
            ((step * (d + s) + first) % 16 + 1) / 8 * (-1 if (d + 2 * s) % 3 == 0 else 1)
            for d in range(head_dim)
        ]
        for s in range(tokens)
    ]


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _exact(values: Any) -> Any:
    """Return numbers with 20 digits."""
    if isinstance(values, list):
        return [_exact(value) for value in values]
    return None if values is None else _Number(values, 20)


def _short(values: Any) -> Any:
    if isinstance(values, list):
        return [_short(value) for value in values]
    return _Number(values, 8)


class _Number(float):
    """A number that JSON shows with its digits, not those of a binary64."""

    def __new__(cls, value: Any, digits: int) -> _Number:
        """Return the number; text: its digits."""
        made = super().__new__(cls, value)
        made.text = f"{Decimal(mpmath.nstr(value, 40)):.{digits}g}"  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        """Return its digits."""
        return self.text  # type: ignore[attr-defined,no-any-return]


def as_json(area: str, vectors: list[dict[str, Any]]) -> str:
    """Return the text of an area's file, with a line for each list of numbers."""

    def lines(value: Any, indent: str) -> str:
        if isinstance(value, dict) and indent.count(" ") < 5:
            inner = [
                f"{indent} {json.dumps(k)}: {lines(v, indent + ' ')}" for k, v in value.items()
            ]
            return "{\n" + ",\n".join(inner) + f"\n{indent}}}" if inner else "{}"
        if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
            inner = [f"{indent} {lines(v, indent + ' ')}" for v in value]
            return "[\n" + ",\n".join(inner) + f"\n{indent}]"
        if isinstance(value, list):
            return f"[{', '.join(lines(v, indent) for v in value)}]"
        return repr(value) if isinstance(value, _Number) else json.dumps(value)

    content = {"version": VERSION, "area": area, "vectors": vectors}
    return lines(content, "") + "\n"


def as_text(vectors: list[dict[str, Any]]) -> str:
    """Return the same for a program that reads words: a field, its sizes, its numbers in a line."""
    lines = [f"conformance {VERSION}"]
    for each in vectors:
        rope, steps = each["rope"], each["positions"]
        axes = rope["axes"] or [[0, 0, 1]] * (rope["rotary_dim"] // 2)
        rows = steps if isinstance(steps[0], list) else [steps]
        lines += [f"vector {each['area']} {each['name']} {each['dtype']}"]
        for field in ("head_dim", "rotary_dim", "start", "theta", "pairing", "write_pairing"):
            lines.append(f"{field} {rope[field]}")
        lines.append(f"reverse {int(rope['reverse'])}")
        lines.append(f"length {each['length'] or 0}")
        rule = [(k, v) for k, values in rope["scaling"].items() for v in _flat(values)]
        lines.append(" ".join(["scaling", str(len(rule)), *(f"{k} {v}" for k, v in rule)]))
        lines.append(_row("blocks", rope["blocks"] or [rope["rotary_dim"]]))
        lines.append(_row("axis_of_pair", [axis for axis, _, _ in axes]))
        lines += [_row("positions", row) for row in rows]
        lines += [_row(field, each[field]) for field in ("q", "k", *FIELDS) if each[field] != []]
        for trap, found in each["traps"].items():
            lines += [_row(f"trap {trap} {field}", found[field]) for field in found]
        lines.append("end")
    return "\n".join(lines) + "\n"


def _row(name: str, values: Any) -> str:
    numbers = list(_flat(values))
    return " ".join([name, str(len(numbers)), *(repr(x) for x in numbers)])


def files() -> dict[Path, str]:
    """Return the text of each file."""
    made = {}
    for area, cases in CASES.items():
        vectors = [vector(area, name, case) for name, case in cases.items()]
        made[HOME / "vectors" / f"{area}.json"] = as_json(area, vectors)
        if area != "cache":  # its keys have two ropes
            made[HOME / "vectors" / f"{area}.txt"] = as_text(vectors)
    return made


if __name__ == "__main__":
    (HOME / "vectors").mkdir(exist_ok=True)
    for file, content in files().items():
        file.write_text(content, encoding="utf-8")
