"""The two sides of a corpus, read from files; what is wrong is said by file and line.

Text is UTF-8, plain or gzipped, one sentence a line, left as it is but for white space at its ends.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path

from ropewalk.files import json_problem
from ropewalk.lab.data.lines import MOST_CHARACTERS, CorpusError, check_characters, read_lines

Pair = tuple[str, str]

SHOWN = 200  # characters of what a line has, in a message


def read_sides(
    source_path: Path, target_path: Path, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of two files, line by line; what was left out is added to `notes`.

    Raises:
        CorpusError: a file is missing or is not whole UTF-8, the files differ in length, or one
            side of a pair is empty.
    """
    rows = _side_by_side(source_path, target_path)
    return _pairs(rows, str(source_path), str(target_path), split, notes)


def _side_by_side(source_path: Path, target_path: Path) -> Iterator[Pair]:
    """Give the lines of both files, pair by pair; files that differ in length are an error."""
    sides = read_lines(source_path), read_lines(target_path)
    for number, (source, target) in enumerate(zip_longest(*sides), start=1):
        if source is not None and target is not None:
            yield source, target
            continue
        rest = number + sum(1 for _ in chain(*sides))  # one of them has ended
        lines = (rest, number - 1) if target is None else (number - 1, rest)
        longer, line = (source_path, source) if target is None else (target_path, target)
        raise CorpusError(
            f"the two sides differ in length: {source_path} has {lines[0]} lines and "
            f"{target_path} has {lines[1]}; line {number} of {longer} is the first without "
            f"a partner: {_excerpt(line or '')}"
        )


def _pairs(
    rows: Iterable[Pair], source_file: str, target_file: str, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Drop rows empty on both sides, with a note; an empty line on one side only is an error."""
    pairs: list[Pair] = []
    number, alone = 0, ""
    for number, row in enumerate(rows, start=1):
        source, target = row
        if bool(source) != bool(target) and not alone:
            empty, other = (target_file, source_file) if source else (source_file, target_file)
            # Said behind all rows: sides that differ in length are the likelier cause.
            alone = (
                f"{empty}, line {number} is empty and its partner in {other} is not: "
                f"{_excerpt(source or target)}; the sides may be out of step. Fill the line, or "
                "delete it on both sides"
            )
        if source:
            pairs.append(row)
    if alone:
        raise CorpusError(alone)
    if not pairs:
        raise CorpusError(f"{source_file} is empty: the {split} split has no sentence pair")
    if len(pairs) < number:
        notes.append(f"{split}: {number - len(pairs)} lines empty on both sides left out")
    return tuple(pairs)


def read_jsonl(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of a file of JSON objects, a line each, with fields `source` and `target`.

    Raises:
        CorpusError: as `read_sides`, and a line that is not such an object.
    """
    rows = _json_rows(path, source, target)
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _json_rows(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line) if line else {source: "", target: ""}
        except (ValueError, RecursionError) as error:  # too deep, or a number of too many digits
            if isinstance(error, json.JSONDecodeError):
                reason = f"it goes wrong at character {error.pos + 1}"
            else:
                reason = json_problem(error)
            raise CorpusError(f"{path}, line {number} is not JSON: {reason}") from None
        for field in (source, target):
            if not isinstance(row, dict) or not isinstance(row.get(field), str):
                there = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                there = there if len(there) <= SHOWN else there[: SHOWN - 1] + "…"
                raise CorpusError(
                    f"{path}, line {number} has no text in field {field!r}; it has {there}"
                )
            check_characters(row[field], path, number)
        yield _in_one_line(row[source]), _in_one_line(row[target])


def read_table(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of a CSV or TSV file: those of its two columns, or of the columns it names.

    A first row that has both `source` and `target` names the columns; else there must be two, the
    source's first. CSV may quote a field; in TSV a quotation mark is text.

    Raises:
        CorpusError: as `read_sides`, and a row that has not these columns.
    """
    rows = _table_rows(path, source, target)
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _table_rows(path: Path, source: str, target: str) -> Iterator[Pair]:
    columns: tuple[int, int] | None = None
    width: int | None = 2  # None: as many as there are
    for number, row in _read_rows(path):
        if columns is None:
            columns = 0, 1
            if source in row and target in row:
                columns, width = (row.index(source), row.index(target)), None
                continue
        if row and (max(columns) >= len(row) or len(row) != (width or len(row))):
            raise CorpusError(
                f"{path}, line {number} has {len(row)} columns: expected two, or a first row that "
                f"names the columns {source!r} and {target!r} and as many in each row"
            )
        one, other = (row[column] for column in columns) if row else ("", "")
        yield _in_one_line(one), _in_one_line(other)


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    tabs = path.name.removesuffix(".gz").endswith(".tsv")
    if tabs:
        for number, line in enumerate(read_lines(path), start=1):
            yield number, line.split("\t") if line else []
        return
    csv.field_size_limit(MOST_CHARACTERS)
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise CorpusError(f"{path}, line {reader.line_num} cannot be read: {error}") from None


def _in_one_line(text: str) -> str:
    # A line end inside a sentence would put hypotheses, one to a line, out of step.
    return text.replace("\n", " ").strip()


def _excerpt(line: str, most: int = 60) -> str:
    return repr(line if len(line) <= most else line[: most - 3] + "...")
