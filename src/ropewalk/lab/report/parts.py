"""A published result in parts: cells of several runs of one comparison, combined.

Everything that decides a score must be the same in all parts: the task, its data, the config except
for what is compared, the precision, torch. Each part stores its own conditions with its cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ropewalk.checks import shown
from ropewalk.files import Facts
from ropewalk.lab.published import item_columns
from ropewalk.lab.report.verdicts import summarize, with_verdicts
from ropewalk.lab.results import CONDITIONS, Results
from ropewalk.lab.tasks import CLASSES

#: Fields of a config that may differ: what is compared, and what does not change a score.
FREE = ("encodings", "seeds", "preset", "device", "splits", "imports")
#: Facts of the data that must be the same if both parts have them.
DATA = (
    "data_digest",
    "corpus",
    "about",
    "splits",
    "lengths",
    "length_bins",
    "share_beyond_training",
    "signatures",
)
#: Facts that all seeds of an encoding share.
OF_AN_ENCODING = ("parameters", "settings")
MOST_NAMED = 5  # most differences that a message lists


def with_part(results: Facts, part: Facts) -> Facts:
    """Return results with the cells of a part added, with new verdicts.

    New encodings come after the others; a cell that was there is replaced.

    Raises:
        ValueError: the part is of another comparison; the message says what differs.
    """
    found = differences(results, part)
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise ValueError(
            f"run must be of the same comparison as the published results, but "
            f"{'; '.join(found[:MOST_NAMED])}{more}; publish it into a folder of its own"
        )
    rows = {row["name"]: row for row in results["encodings"]}
    for row in part["encodings"]:
        rows[row["name"]] = _with_cells(rows[row["name"]], row) if row["name"] in rows else row
    task = CLASSES[results["task"]]
    merged = {**part, **results, "encodings": list(rows.values())}
    merged["metrics"] = [metric.facts() for metric in task.metrics]
    merged["config"] = _merged_config(results["config"], part["config"], merged["encodings"])
    keys = [metric["key"] for metric in merged["metrics"]]
    summarize(merged["encodings"], merged["splits"], keys)
    against = [name for held in (results, part) for name in held["against"]]
    judged = with_verdicts(Results.model_validate(merged), against)
    in_a_run = {
        name
        for held in (results, part)
        for name in held["against"]
        if name not in held.get("tested_later", ())
    }
    later = tuple(name for name in judged.against if name not in in_a_run)
    judged = judged.with_changes(tested_later=later) if later else judged.without("tested_later")
    return with_conditions(judged.as_json(), _parts_with(parts_of(results), part))


def differences(results: Facts, part: Facts) -> list[str]:
    """Return how the comparison of a part differs from that of these results."""
    here, there = (held["task"] for held in (part, results))
    if here != there:
        return [f"task is {here}, published {there}"]
    found = _different(_fixed_fields(results, part), _fixed_fields(part, results))
    found += _different(*map(_data, (results, part)))
    found += _different(*(_environment(held) for held in (results, part)))
    for split in results["splits"]:
        there, here = (item_columns(held, split) for held in (results, part))
        if there and here and there != here:
            found.append(f"the items of {split} differ")
    rows = {row["name"]: row for row in results["encodings"]}
    for row in part["encodings"]:
        if row["name"] in rows:
            held = rows[row["name"]]
            own = ({k: r.get(k) for k in OF_AN_ENCODING} for r in (held, row))
            found += [f"{row['name']}: {text}" for text in _different(*own)]
            if "settings" in held and not _replaces(row, held):
                found.append(
                    f"the settings of {row['name']} were chosen with all of its seeds, so all must "
                    f"be replaced"
                )
    return found


def _data(results: Facts) -> Facts:
    """Return the facts of the data; of sentences about them the numbers, since words may change."""
    found = {name: results[name] for name in DATA if name in results}
    if "facts" in (corpus := found.get("corpus", {})):
        numbers = [re.findall(r"\d[\d,.]*", text) for _, text in corpus["facts"]]
        found["corpus"] = corpus | {"facts": numbers}
    return found


def other_versions(results: Facts, part: Facts) -> list[str]:
    """Return which packages had other versions in a part, among those that may differ."""
    there, here = (_versions(held) for held in (results, part))
    return [
        f"{name} is {here[name]}, published {there[name]}"
        for name in here
        if name in there and here[name] != there[name]
    ]


def parts_of(results: Facts) -> list[Facts]:
    """Return the conditions of each part of results, and its cells: encoding -> seeds."""
    if "parts" in results:
        return list(results["parts"])
    cells = {row["name"]: [c["seed"] for c in row["cells"]] for row in results["encodings"]}
    return [{**{k: results[k] for k in CONDITIONS if k in results}, "cells": cells}]


def with_conditions(results: Facts, parts: Sequence[Facts]) -> Facts:
    """Return results with the conditions of these parts; one part alone needs no list of parts.

    With several parts, the command has a line for each, the start is the first, and durations are
    added.
    """
    plain = {name: held for name, held in results.items() if name != "parts"}
    first = parts[0]
    plain |= {name: first[name] for name in CONDITIONS if name in first}
    if len(parts) == 1:
        return plain
    return plain | {
        "parts": list(parts),
        "command": "\n".join(part["command"] for part in parts),
        "note": None,
        "sittings": sum(part["sittings"] for part in parts),
        "duration_s": round(sum(part["duration_s"] for part in parts), 1),
    }


def _parts_with(parts: Sequence[Facts], part: Facts) -> list[Facts]:
    """Return the parts with those of another, which replace the same cells in the old ones."""
    added = parts_of(part)
    taken = {(name, s) for each in added for name, seeds in each["cells"].items() for s in seeds}
    kept = []
    for each in parts:
        cells = {
            name: left
            for name, seeds in each["cells"].items()
            if (left := [seed for seed in seeds if (name, seed) not in taken])
        }
        if cells:
            kept.append({**each, "cells": cells})
    return sorted([*kept, *added], key=lambda each: (each["started"], each["command"]))


def _replaces(row: Facts, held: Facts) -> bool:
    """Return whether a row has a cell for every seed of the published row."""
    seeds = {cell["seed"] for cell in row["cells"]}
    return all(cell["seed"] in seeds for cell in held["cells"])


def _with_cells(row: Facts, other: Facts) -> Facts:
    """Return a row with the cells of another run of the same encoding added."""
    if _replaces(other, row):
        return other
    cells = {cell["seed"]: cell for held in (row, other) for cell in held["cells"]}
    whole = {**other, **row, "cells": [cells[seed] for seed in sorted(cells)]}
    maps = [held["attention"] for held in (row, other) if "attention" in held]
    if maps:  # for the same seed, the other run's: its cell has replaced the old one
        whole["attention"] = min(reversed(maps), key=lambda each: each["seed"])
    return whole


def _merged_config(config: Facts, other: Facts, rows: Sequence[Facts]) -> Facts:
    merged = dict(config)
    merged["encodings"] = [row["name"] for row in rows]
    merged["seeds"] = sorted({cell["seed"] for row in rows for cell in row["cells"]})
    imports = {each["digest"]: each for held in (other, config) for each in held.get("imports", ())}
    if imports:
        merged["imports"] = [imports[digest] for digest in sorted(imports)]
    return merged


def _fixed_fields(results: Facts, other: Facts) -> Facts:
    """Return the fields of a config that all parts share.

    The path of the data is one of them unless both parts know the digest of the data.
    """
    free = [*FREE, *(["data"] if all("data_digest" in held for held in (results, other)) else [])]
    held = {name: value for name, value in results["config"].items() if name not in FREE}
    held = {"sweep": {}, **held}
    return {f"config {name}": value for name, value in held.items() if name not in free}


def _environment(results: Facts) -> Facts:
    torch = results["versions"]["torch"].partition("+")[0]  # after the +: the build
    return {"torch": torch, "precision": results["machine"]["precision"]}


def _versions(results: Facts) -> dict[str, str]:
    held: dict[str, str] = {"ropewalk": results["ropewalk"], **results["versions"]}
    return {name: version for name, version in held.items() if name != "torch"}


def _different(there: Facts, here: Facts) -> list[str]:
    """Return the facts that both have and that differ."""
    return [
        f"{name} is {_short(here[name], there[name])}, published {_short(there[name], here[name])}"
        for name in there
        if name in here and there[name] != here[name]
    ]


def _short(value: Any, other: Any) -> str:
    """Show a value; of a dictionary, only the entries that differ from the other."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: held for name, held in value.items() if other.get(name) != held}
    return shown(value)
