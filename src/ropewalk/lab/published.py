"""The format of a published folder: a small results.json, and one archive with the other data.

`results.json` has all facts of a run's results except the bulk data of its cells, and two more:

- `format`: 1. The results of a run have no such field, and are complete.
- `items`: per split, the statistics that do not depend on the answer, once for all cells: lengths
  of references, numbers of tokens.

`encodings.zip` has the rest. `encodings/SLUG.json` in it has that of an encoding:

- `encoding`: its name.
- `cells`: per seed, the curves `training` and `validation`, one list per quantity, of at most 60
  points; and `items`, the statistics of each split. BLEU of sentences (two digits) is included only
  if the statistics do not determine it.
- `attention`, if known: weights over the example of this index in hundredths, by layer, head and
  token; trailing zeros of a row are left out.

A list of integers from 0 to 35 is a string with one character for each: 0 to 9, then a to z. Every
other list is plain JSON, on a line of its own. Other content of a file is preserved.

`hypotheses/SLUG/seed-SEED.SPLIT.txt`, if the project generates the data, has a line with the answer
to each item. The files of the archive are in order of their names and have no times, so that the
same results give the same archive. `unzip` reads it. studies/published_files.py writes this format.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from zipfile import BadZipFile, ZipFile

from ropewalk.checks import shown
from ropewalk.files import (
    MOST_DATA_BYTES,
    MOST_JSON_BYTES,
    Facts,
    parse_json,
    read_bytes,
    shown_path,
)
from ropewalk.lab.scoring.bleu import sentence_scores

FORMAT = 1
ARCHIVE = "encodings.zip"
BULK = "encodings"  # folder in the archive
MOST_POINTS = 60  # of a curve: a figure's panel is about 400 pixels wide, with smoothed curves
CURVES = ("training", "validation")
WAY_OUT = "restore it from version control, or publish the run again"


def whole_results(folder: Path, facts: Facts) -> Facts:
    """Return full results from the content of a folder's `results.json`, in this format or not.

    Raises ValueError, naming the file, if one is missing or is not in this format.
    """
    if "format" not in facts:
        return facts
    if facts["format"] != FORMAT:
        raise ValueError(
            f"{folder / 'results.json'}: format must be {FORMAT}, got {shown(facts['format'])}; "
            "read it with the version of ropewalk that wrote it"
        )
    whole = {name: held for name, held in facts.items() if name not in ("format", "items")}
    rows, items = facts.get("encodings"), facts.get("items")
    if not isinstance(rows, list) or not isinstance(items, dict):
        raise ValueError(f"{folder / 'results.json'} has no encodings and items; {WAY_OUT}")
    archive = Archive(folder / ARCHIVE)
    return whole | {"encodings": [_whole_row(archive, row, items) for row in rows]}


def unpack(held: Any) -> list[Any]:
    """Return the list that the format holds so. Raises ValueError if it is none."""
    if isinstance(held, str) and re.fullmatch("[0-9a-z]*", held):
        return [int(sign, 36) for sign in held]
    if isinstance(held, list) and held and isinstance(held[0], (list, str)):
        return [unpack(column) for column in held]
    if not isinstance(held, list) or not all(type(value) in (int, float) for value in held):
        raise ValueError(f"must be numbers, or a string of 0-9 and a-z, got {shown(held)}")
    return held


def thinned(points: Sequence[Facts], most: int = MOST_POINTS) -> list[Facts]:
    """Return at most `most` points; each groups some: mean loss, largest gradient, last others.

    The loss of a group is unknown if one of its losses is, as in a training that diverged.
    """
    size = -(-len(points) // most) or 1
    return [_one_point(points[i : i + size]) for i in range(0, len(points), size)]


def _one_point(group: Sequence[Facts]) -> Facts:
    if len(group) == 1:
        return group[0]
    point, losses = dict(group[-1]), [each["loss"] for each in group]
    known = [loss for loss in losses if loss is not None]
    point["loss"] = round(fmean(known), 4) if len(known) == len(losses) else None
    gradients = [each["gradient"] for each in group if each.get("gradient") is not None]
    return point | ({"gradient": max(gradients)} if gradients else {})


def sentence_bleu(statistics: Facts) -> list[float] | None:
    """Return BLEU of each sentence, rounded as in results, or None without its statistics."""
    if "matches" not in statistics:
        return None
    held = (statistics[name] for name in ("length", "reference_length", "matches"))
    return [round(score, 2) for score in sentence_scores(*held)]


def _whole_row(archive: Archive, row: Any, items: Mapping[str, Facts]) -> Facts:
    slug = row.get("slug") if isinstance(row, dict) else None
    if not isinstance(slug, str) or not re.fullmatch(r"[\w.+-]+", slug):
        raise ValueError(
            f"{archive.path.parent / 'results.json'}: slug must name a file of {BULK}/, got "
            f"{shown(slug)}"
        )
    name = f"{BULK}/{slug}.json"
    place = archive.place(name)
    text = archive.read(name)
    try:
        bulk = parse_json(text.decode(), MOST_JSON_BYTES)
        if bulk["encoding"] != row["name"]:
            raise ValueError(f"it is of {shown(bulk['encoding'])}, not of {row['name']}")
        held = {cell["seed"]: cell for cell in bulk["cells"]}
        # The file has more seeds than results.json if adding a part was interrupted.
        cells = [_whole_cell(cell, held[cell["seed"]], items) for cell in row["cells"]]
        attention = {name: _unpack_attention(bulk[name]) for name in ("attention",) if name in bulk}
    except KeyError as error:
        raise ValueError(f"{place} lacks {shown(error.args[0])}; {WAY_OUT}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{place} is not as published: {error}; {WAY_OUT}") from None
    return {**row, "cells": cells, **attention}


def _whole_cell(facts: Facts, bulk: Facts, items: Mapping[str, Facts]) -> Facts:
    cell = dict(facts)
    for name in CURVES:
        if name in bulk:
            columns = bulk[name]
            if not all(isinstance(column, list) for column in columns.values()):
                raise ValueError(f"{name} must have a list for each quantity")
            points = zip(*columns.values(), strict=True)
            cell[name] = [dict(zip(columns, point, strict=True)) for point in points]
    cell["scores"] = {
        split: _whole_scores(scores, bulk["items"].get(split, {}), items.get(split, {}))
        for split, scores in facts["scores"].items()
    }
    return cell


def _whole_scores(scores: Facts, held: Facts, items: Facts) -> Facts:
    whole = dict(scores)
    if "statistics" in held:
        columns = {name: unpack(each) for name, each in {**items, **held["statistics"]}.items()}
        nested = (c if c and isinstance(c[0], list) else [c] for c in columns.values())
        lengths = {len(column) for columns_of in nested for column in columns_of}
        if len(lengths) > 1:
            raise ValueError(f"statistics of {min(lengths)} and of {max(lengths)} items in a split")
        whole["statistics"] = columns
        formed = sentence_bleu(columns)
        whole |= {} if formed is None else {"sentence_bleu": formed}
    return whole | {name: unpack(held[name]) for name in ("sentence_bleu",) if name in held}


def _unpack_attention(packed: Facts) -> Facts:
    size = packed["columns"]
    weights = [
        [[[w / 100 for w in row] + [0.0] * (size - len(row)) for row in head] for head in layer]
        for layer in packed["hundredths"]
    ]
    held = {name: each for name, each in packed.items() if name not in ("columns", "hundredths")}
    return held | {"weights": weights}


class Archive:
    """An archive that is read; every mistake is a ValueError that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.zip = ZipFile(io.BytesIO(read_bytes(path, MOST_DATA_BYTES)))
        except BadZipFile as error:
            raise ValueError(f"{shown_path(path)} is damaged: {error}; {WAY_OUT}") from None
        except ValueError as error:
            raise ValueError(f"{error}; {WAY_OUT}") from None

    def place(self, name: str) -> str:
        """Return how a message names a file of the archive."""
        return f"{name} in {shown_path(self.path)}"

    def read(self, name: str) -> bytes:
        """Return a file of at most `MOST_JSON_BYTES`."""
        try:
            size = self.zip.getinfo(name).file_size
            if size > MOST_JSON_BYTES:
                raise ValueError(f"{size:,} bytes, but at most {MOST_JSON_BYTES:,} are allowed")
            with self.zip.open(name) as file:
                return file.read(size)
        except KeyError:
            raise ValueError(f"{self.place(name)}: no such file; {WAY_OUT}") from None
        # Encrypted, or compressed in another way, is no archive of ours.
        except (BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
            raise ValueError(f"{self.place(name)} is damaged: {error}; {WAY_OUT}") from None
        except ValueError as error:
            raise ValueError(f"{self.place(name)}: {error}; {WAY_OUT}") from None
