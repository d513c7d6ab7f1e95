"""Run the vectors against a port: `python run.py ADAPTER.py [--area NAME] [--json FILE]`.

It takes NumPy and nothing else. An adapter is a Python file with one or more of the functions

    frequencies(vector) -> inverse frequencies (R/2,), attention factor
    tables(vector)      -> cos and sin, each (S, R/2), with the attention factor
    rotate(vector)      -> rotated q and k, each (S, D), or the one that the vector has

that return None for what the port does not offer. README.md says what a vector has.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

VERSION = 1
LEVELS = {
    "frequencies": ("inverse_frequencies", "attention_factor"),
    "tables": ("cos", "sin"),
    "rotate": ("rotated_q", "rotated_k"),
}
# How far a right result may be off; README.md says why.
FREQUENCIES, TABLES, PRODUCT = 4e-6, 1e-6, 8 * 2.0**-24
ROUNDING = {"float32": 2.0**-22, "bfloat16": 2.0**-7, "float16": 2.0**-10}
NEEDED = {"name", "rope", "positions", "dtype", "q", "k", "traps", *sum(LEVELS.values(), ())}
Vector = dict[str, Any]


def load(folder: Path, areas: list[str]) -> list[Vector]:
    """Return the vectors of the areas, without any of all. Raises ValueError for other files."""
    vectors, paths = [], {path.stem: path for path in sorted(folder.glob("*.json"))}
    if not paths or set(areas) - set(paths):
        raise ValueError(f"areas must be of {', '.join(paths) or folder}, got {areas}")
    for path in (paths[area] for area in areas or paths):
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path.name} must be JSON: {error}") from None
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError(f"{path.name} must be a file of vectors, version {VERSION}")
        if not all(set(vector) >= NEEDED for vector in content.get("vectors", ())):
            raise ValueError(f"{path.name} must have all fields of schema.json in each vector")
        vectors += content.get("vectors", ())
    return vectors


def places(rope: Vector, pairing: str) -> np.ndarray:
    """Return the two dimensions of each pair, (R/2, 2)."""
    found, start = [], rope["start"]
    for size in rope["blocks"] or [rope["rotary_dim"]]:
        i = np.arange(size // 2)
        pair = (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        found.append(start + np.stack(pair, -1))
        start += size
    return np.concatenate(found)


def bounds(vector: Vector, angles: bool) -> dict[str, np.ndarray]:
    """Return how far each number may be off. angles: whether float32 may have rounded them."""
    rope, factor = vector["rope"], abs(vector["attention_factor"] or 1.0)
    limits = {"attention_factor": np.array(FREQUENCIES * factor)}
    if vector["inverse_frequencies"]:
        f = np.abs(np.array(vector["inverse_frequencies"]))
        axes = [axis for axis, _, _ in rope["axes"] or [[0, 0, 1]] * len(f)]
        at = np.abs(np.array(vector["positions"], float).reshape(max(axes) + 1, -1))
        off = factor * (TABLES + angles * np.minimum(2.0, PRODUCT * at[axes].T * f))
        limits |= {"inverse_frequencies": FREQUENCIES * f + 1e-30, "cos": off, "sin": off}
    else:  # keys that move
        off = np.full((len(vector["k"]), rope["rotary_dim"] // 2), 4 * TABLES + angles * 4e-3)
    coarse = ROUNDING[vector["dtype"]]
    reads, writes = (places(rope, rope[each]) for each in ("pairing", "write_pairing"))
    for name in ("q", "k"):
        if vector[name]:
            x = np.abs(np.array(vector[name]))
            limit = coarse * x + 1e-6
            limit[:, writes] = (x[:, reads].sum(-1) * (off + coarse * factor))[..., None]
            limits[f"rotated_{name}"] = limit
    return limits


def error(results: dict[str, Any], right: dict[str, Any], limits: dict[str, np.ndarray]) -> float:
    """Return the largest difference of results, in units of the limits."""
    worst = 0.0
    for field in set(results) & set(right):
        made, wanted = np.asarray(results[field], float), np.asarray(right[field], float)
        if made.shape != wanted.shape:
            raise ValueError(f"{field} must be of shape {wanted.shape}, got {made.shape}")
        off = np.abs(made - wanted) / limits[field]
        worst = max(worst, float(np.where(np.isfinite(off), off, np.inf).max(initial=0.0)))
    return worst


def answers(vector: Vector, level: str, made: Any) -> dict[str, np.ndarray]:
    """Return what an adapter returned by field: both results, or the one that there is."""
    given = {field: vector[field] not in (None, []) for field in LEVELS[level]}
    several = isinstance(made, (tuple, list))
    if sum(given.values()) == 1 and not (several and len(made) == 2 and np.ndim(made[0]) != 1):
        made = made[0] if several and len(made) == 1 and np.ndim(made[0]) > 1 else made
        made = [made if given[field] else None for field in given]
    elif not several or len(made) != 2:
        raise ValueError(f"{level} must return {' and '.join(given)}, got {type(made).__name__}")
    results = {f: np.asarray(one, float) for f, one in zip(given, made, strict=True) if given[f]}
    if not all(np.isfinite(result).all() for result in results.values()):
        raise ValueError("the result must be finite")
    return results


def verdict(vector: Vector, level: str, made: Any) -> dict[str, Any]:
    """Return what a level's results are: valid, acceptable with a flag, or invalid with a trap."""
    results = answers(vector, level, made)
    strict, loose = (bounds(vector, angles) for angles in (False, True))
    if error(results, vector, strict) <= 1:
        return {"result": "valid"}
    if error(results, vector, loose) <= 1:
        off = max(float(np.abs(made - vector[field]).max()) for field, made in results.items())
        return {"result": "acceptable", "flag": "float32-angles", "off_by": off}
    for trap, wrong in vector["traps"].items():
        if set(wrong) & set(results) and error(results, wrong, loose) <= 1:
            return {"result": "invalid", "trap": trap}
    return {"result": "invalid", "trap": None}


def run(adapter: Any, vectors: list[Vector]) -> list[dict[str, Any]]:
    """Return a record for each vector and level that the adapter offers."""
    records = []
    for vector in vectors:
        for level, fields in LEVELS.items():
            function = getattr(adapter, level, None)
            if function is None or not any(vector[field] not in (None, []) for field in fields):
                continue
            try:
                made = function(vector)
                found = None if made is None else verdict(vector, level, made)
            except Exception as failure:  # whatever the port raises; the others go on
                said = f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
                found = {"result": "invalid", "trap": None, "raised": said}
            if found is not None:
                records.append({k: vector[k] for k in ("area", "name")} | {"level": level} | found)
    return records


def summary(records: list[dict[str, Any]]) -> str:
    """Return a line for each area, then one for each failure."""
    lines = [f"{'area':<16}{'exact':>8}{'float32':>9}{'wrong':>8}"]
    for area in dict.fromkeys(record["area"] for record in records):
        n = Counter(record["result"] for record in records if record["area"] == area)
        lines.append(f"{area:<16}{n['valid']:>8}{n['acceptable']:>9}{n['invalid']:>8}")
    wrong = [record for record in records if record["result"] == "invalid"]
    for each in wrong:
        why = each.get("raised") or each["trap"] or "no known mistake"
        lines.append(f"FAILED {each['area']}/{each['name']}, {each['level']}: {why}")
    traps = Counter("error" if "raised" in r else r["trap"] or "no known mistake" for r in wrong)
    named = ", ".join(f"{trap} ({count})" for trap, count in traps.most_common())
    return "\n".join(lines + [f"mistakes: {named}"] * bool(named))


def main() -> int:
    """Run an adapter; return 1 if a result is invalid, 2 if it cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("adapter", type=Path, help="a Python file; see above")
    parser.add_argument("--area", action="append", default=[], help="only this area; repeatable")
    parser.add_argument("--json", type=Path, help="write all records to this file")
    parser.add_argument("--vectors", type=Path, default=Path(__file__).parent / "vectors")
    options = parser.parse_args()
    try:
        vectors = load(options.vectors, options.area)
        spec = importlib.util.spec_from_file_location("adapter", options.adapter)
        if spec is None or spec.loader is None:
            raise ValueError(f"adapter must be a Python file, got {options.adapter}")
        adapter = importlib.util.module_from_spec(spec)
        sys.path.append(str(options.adapter.parent))  # what the adapter imports beside it
        spec.loader.exec_module(adapter)
        records = run(adapter, vectors)
        if not records:
            raise ValueError("the adapter must offer one of frequencies, tables, rotate")
        if options.json is not None:
            options.json.write_text(json.dumps({"version": VERSION, "records": records}, indent=1))
    except (Exception, SystemExit) as problem:  # whatever an adapter raises as it is loaded
        kind = "" if isinstance(problem, (ValueError, OSError)) else f"{type(problem).__name__}: "
        print(f"conformance: {kind}{' '.join(str(problem).split())}", file=sys.stderr)
        return 2
    try:
        print(summary(records), flush=True)
    except BrokenPipeError:  # who reads it has enough, as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if any(record["result"] == "invalid" for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
