"""Write the vectors: `python conformance/generate.py`. It takes mpmath and NumPy, not ropewalk.

vectors/AREA.json is for programs, vectors/AREA.txt the same for code without a JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from cases import CASES, Case
from formulas import DIGITS, Levels, levels, rotated
from run import LEVELS, VERSION, bounds, error
from traps import Asked, traps

HOME = Path(__file__).parent
FIELDS = tuple(field for fields in LEVELS.values() for field in fields)
SEEDS = {"q": (5, 3), "k": (11, 6)}
#: What is asked of models, whose vectors are large; the others are in the other areas.
OF_MODELS = {
    "pairing", "theta", "rule-ignored", "amplitude", "rotary-part", "partial-ignored",
    "frequencies", "wrong-exponent", "offset-ignored", "positions-ignored", "half-precision-angles",
    "half-precision-angles:frequencies", "half-precision-angles:tables",
}  # fmt: skip


def vector(area: str, name: str, case: Case) -> dict[str, Any]:
    """Return one vector: the inputs of a case, the right numbers and those of mistakes."""
    rope, at, before = case.rope, case.positions, None
    if rope["axes"] is not None:
        at = [list(position) for position in zip(*case.positions, strict=True)]
    if case.moved is not None:
        before = case.moved[0], rope | case.moved[1]
    heads = {n: _head(rope["head_dim"], len(at), *seed) for n, seed in SEEDS.items()}
    q, k = [] if before else heads["q"], [] if case.model else heads["k"]
    asked = Asked(rope, at, case.length, q, k, before)
    with mpmath.workdps(DIGITS):
        right = asked.right()
        answer = asked.of(right)
        cached = None if before is None else {"positions": before[0], "rope": before[1]}
        fields: dict[str, Any] = {"name": name, "area": area, "what": case.what}
        fields |= {"rope": rope, "order": case.axes}
        fields |= {"length": case.length, "dtype": case.dtype, "config": None, "layer": None}
        fields |= {key: case.model[key] for key in ("config", "layer") if case.model}
        fields |= {"positions": case.positions, "q": q, "k": k, "cached": cached}
        if before is not None:
            old = rotated(before[1], levels(before[1], before[0], case.length), k)
            fields["k"] = _digits(old)
            answer = {"rotated_k": answer["rotated_k"]}
        fields |= {key: _digits(answer.get(key, [])) for key in FIELDS}
        fields["traps"] = _separate(fields, asked, right, answer)
        return fields


def _separate(
    fields: dict[str, Any], asked: Asked, right: Levels, answer: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the mistakes whose results can be told from the right ones and from each other's."""
    kept: dict[str, dict[str, Any]] = {}
    compared = [_floats(answer)]  # converted once, since each is compared with every later one
    of_model, limits = fields["area"] == "models", bounds(fields, angles=True)
    for name, found in traps(asked, right):
        if name in kept or (of_model and name not in OF_MODELS):
            continue
        own: dict[str, Any] = {}
        for level in LEVELS.values():
            given = {f: found[f] for f in level if found.get(f) and answer.get(f)}
            if any(np.shape(given[f]) != np.shape(answer[f]) for f in given):
                continue  # another number of pairs
            made = _floats(given)
            others = (each for each in compared if set(each) & set(made))
            if given and all(error(made, each, limits) > 2 for each in others):
                own |= given
        if own:
            kept[name] = own
            compared.append(_floats(own))
    # Keys rotate as queries do; and tables of wide heads would be most of the file.
    left_out = {"rotated_k"} if asked.q else set()
    left_out |= {"cos", "sin"} if of_model else set()
    return {
        name: {
            f: _digits(own[f], 20 if f == "inverse_frequencies" else 8)
            for f in own
            if f not in left_out
        }
        for name, own in kept.items()
        if set(own) - left_out
    }


def _floats(found: dict[str, Any]) -> dict[str, Any]:
    return {field: np.asarray(rows, float) for field, rows in found.items() if rows}


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


def _digits(values: Any, digits: int = 20) -> Any:
    """Return numbers with so many digits."""
    if isinstance(values, list):
        return [_digits(value, digits) for value in values]
    return None if values is None else _Number(values, digits)


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
