"""Write the format of a published folder, which `ropewalk.lab.published` describes and reads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from ropewalk.files import Facts, readable_json, write_bytes
from ropewalk.lab.published import (
    ARCHIVE,
    BULK,
    CURVES,
    FORMAT,
    Archive,
    sentence_bleu,
    thinned,
)

ANSWERS = "hypotheses"  # folder in the archive
#: Statistics of an item that do not depend on its answer.
ITEM_COLUMNS = ("reference_length", "examples", "tokens")
SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"


def write_published(folder: Path, results: Facts, answers: Mapping[str, bytes]) -> None:
    """Write results in this format, and answers: name in the archive -> content."""
    facts, bulks = split_results(results)
    files = {
        f"{BULK}/{slug}.json": (readable_json(bulk, separators=(",", ":")) + "\n").encode()
        for slug, bulk in bulks.items()
    }
    write_bytes(folder / ARCHIVE, _archive({**files, **answers}))
    write_bytes(folder / "results.json", (readable_json(facts) + "\n").encode())


def read_answers(folder: Path) -> dict[str, bytes]:
    """Return the answers of a published folder: name in the archive -> content."""
    archive = Archive(folder / ARCHIVE)
    names = archive.zip.namelist()
    return {name: archive.read(name) for name in names if name.startswith(ANSWERS)}


def split_results(results: Facts) -> tuple[Facts, dict[str, Facts]]:
    """Return the content of `results.json` in this format, and each encoding's bulk by slug."""
    items = {split: item_columns(results, split) for split in results["splits"]}
    rows, bulks = [], {}
    for row in results["encodings"]:
        cells = [_split_cell(cell, items) for cell in row["cells"]]
        kept = {name: held for name, held in row.items() if name != "attention"}
        rows.append(kept | {"cells": [facts for facts, _ in cells]})
        bulk = {"encoding": row["name"], "cells": [bulk for _, bulk in cells]}
        if "attention" in row:
            bulk["attention"] = _pack_attention(row["attention"])
        bulks[row["slug"]] = bulk
    packed = {split: {k: pack(v) for k, v in held.items()} for split, held in items.items()}
    return {"format": FORMAT, **results, "items": packed, "encodings": rows}, bulks


def item_columns(results: Facts, split: str) -> dict[str, list[Any]]:
    """Return the statistics of a split's items that do not depend on the answers."""
    for row in results["encodings"]:
        for cell in row["cells"]:
            if statistics := cell["scores"].get(split, {}).get("statistics"):
                return {name: statistics[name] for name in ITEM_COLUMNS if name in statistics}
    return {}


def pack(values: list[Any]) -> list[Any] | str:
    """Return a list of integers from 0 to 35 as a string of one character each; others as is.

    Of a list of lists, such as the matches of BLEU, each is packed.
    """
    if values and isinstance(values[0], list):
        return [pack(column) for column in values]
    if not all(type(value) is int and 0 <= value < len(SIGNS) for value in values):
        return values
    return "".join(SIGNS[value] for value in values)


def _split_cell(cell: Facts, items: Mapping[str, Mapping[str, Any]]) -> tuple[Facts, Facts]:
    """Return the facts of a cell for `results.json`, and its bulk."""
    facts = {name: held for name, held in cell.items() if name not in CURVES}
    bulk: Facts = {"seed": cell["seed"]}
    for name in CURVES:
        if name in cell:
            points = thinned(cell[name])
            columns = list(dict.fromkeys(key for point in points for key in point))
            bulk[name] = {key: [point.get(key) for point in points] for key in columns}
    facts["scores"], bulk["items"] = {}, {}
    for split, scores in cell["scores"].items():
        facts["scores"][split], held = _split_scores(scores, items.get(split, {}))
        if held:
            bulk["items"][split] = held
    return facts, bulk


def _split_scores(scores: Facts, items: Mapping[str, Any]) -> tuple[Facts, Facts]:
    facts = {k: v for k, v in scores.items() if k not in ("statistics", "sentence_bleu")}
    held: Facts = {}
    if "statistics" in scores:
        held["statistics"] = {
            name: pack(column)
            for name, column in scores["statistics"].items()
            if repr(items.get(name)) != repr(column)  # 0 and 0.0 are equal, but differ in a file
        }
    sentences = scores.get("sentence_bleu")
    if sentences is not None and sentences != sentence_bleu(scores.get("statistics", {})):
        held["sentence_bleu"] = sentences
    return facts, held


def _pack_attention(attention: Facts) -> Facts:
    hundredths = [
        [[np.trim_zeros([round(100 * w) for w in row], "b") for row in head] for head in layer]
        for layer in attention["weights"]
    ]
    size = len(attention["weights"][0][0][0])
    held = {name: each for name, each in attention.items() if name != "weights"}
    return held | {"columns": size, "hundredths": hundredths}


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of these files whose bytes do not depend on the time or the machine."""
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name in sorted(files):
            entry = ZipInfo(name)  # of 1980, the first year that the format has
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as written on Linux
            archive.writestr(entry, files[name], ZIP_DEFLATED, compresslevel=9)
    return content.getvalue()
