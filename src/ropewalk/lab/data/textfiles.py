"""The two sides of a corpus, read from files; errors name the file and the line.

Text is UTF-8, plain or gzipped, one sentence per line. Only white space at the ends is removed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from pathlib import Path

from ropewalk.files import json_problem
from ropewalk.lab.data.lines import MOST_CHARACTERS, CorpusError, check_characters, read_lines

Pair = tuple[str, str]

SHOWN = 200  # maximum number of characters of a line in a message


def read_sides(
    source_path: Path, target_path: Path, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Return the pairs of two files, line by line; append to `notes` what was left out.

    Raises:
        CorpusError: if a file is missing or is not valid UTF-8, the files differ in length, or
            one side of a pair is empty.
    """
    rows = _side_by_side(source_path, target_path)
    return _pairs(rows, str(source_path), str(target_path), split, notes)


def _side_by_side(source_path: Path, target_path: Path) -> Iterator[Pair]:
    """Yield the lines of both files in pairs; raise CorpusError if the files differ in length."""
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
            f"a counterpart: {_excerpt(line or '')}"
        )


def _pairs(
    rows: Iterable[Pair], source_file: str, target_file: str, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Drop rows empty on both sides, with a note; raise CorpusError if only one side is empty."""
    return tuple(checked_pairs(rows, source_file, target_file, split, notes))


def checked_pairs(
    rows: Iterable[Pair], source_file: str, target_file: str, split: str, notes: list[str]
) -> Iterator[Pair]:
    """Yield the rows that are not empty; append to `notes` how many were.

    Raises CorpusError, after the last row, if one side of a row is empty or no row is left.
    """
    number, count, alone = 0, 0, ""
    for number, row in enumerate(rows, start=1):
        source, target = row
        if bool(source) != bool(target) and not alone:
            empty, other = (target_file, source_file) if source else (source_file, target_file)
            # Raised after all rows: sides that differ in length are the likelier cause.
            alone = (
                f"{empty}, line {number} is empty, but its counterpart in {other} is not: "
                f"{_excerpt(source or target)}; the sides may be misaligned. Fill the line, or "
                "delete it on both sides"
            )
        if source:
            count += 1
            yield row
    if alone:
        raise CorpusError(alone)
    if not count:
        raise CorpusError(f"{source_file} is empty: the {split} split has no sentence pairs")
    if count < number:
        notes.append(f"{split}: {number - count} lines empty on both sides left out")


def stream_pairs(
    paths: Mapping[str, Path], split: str, source: str, target: str, notes: list[str]
) -> Iterator[Pair]:
    """Yield the pairs of a split's files by their endings, as the readers below return them."""
    for ending, rows in (("jsonl", _json_rows), ("csv", _table_rows), ("tsv", _table_rows)):
        if path := paths.get(ending):
            names = f"{path} [{source}]", f"{path} [{target}]"
            return checked_pairs(rows(path, source, target), *names, split, notes)
    one, other = paths[source], paths[target]
    return checked_pairs(_side_by_side(one, other), str(one), str(other), split, notes)


def read_jsonl(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Return the pairs of a JSON Lines file, whose objects have fields `source` and `target`.

    Raises:
        CorpusError: as `read_sides`, and if a line is not such an object.
    """
    rows = _json_rows(path, source, target)
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _json_rows(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line) if line else {source: "", target: ""}
        except (ValueError, RecursionError) as error:  # too deep, or too many digits
            if isinstance(error, json.JSONDecodeError):
                reason = f"the first error is at character {error.pos + 1}"
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
        yield in_one_line(row[source]), in_one_line(row[target])


def read_table(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Return the pairs of a CSV or TSV file: of its two columns, or of the columns it names.

    A first row that has both `source` and `target` names the columns. Otherwise there must be two
    columns, the source first. CSV may quote a field; in TSV a quotation mark is text.

    Raises:
        CorpusError: as `read_sides`, and if a row lacks these columns.
    """
    rows = _table_rows(path, source, target)
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _table_rows(path: Path, source: str, target: str) -> Iterator[Pair]:
    columns: tuple[int, int] | None = None
    width: int | None = 2  # None: any number
    for number, row in _read_rows(path):
        if columns is None:
            columns = 0, 1
            if source in row and target in row:
                columns, width = (row.index(source), row.index(target)), None
                continue
        if row and (max(columns) >= len(row) or len(row) != (width or len(row))):
            raise CorpusError(
                f"{path}, line {number} has {len(row)} columns: expected two, or a first row that "
                f"names the columns {source!r} and {target!r}, and enough columns in every row"
            )
        one, other = (row[column] for column in columns) if row else ("", "")
        yield in_one_line(one), in_one_line(other)


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


def in_one_line(text: str) -> str:
    """Return a text without line ends, stripped."""
    # A line end inside a sentence would misalign the hypotheses file, which has one per line.
    return text.replace("\n", " ").strip()


def _excerpt(line: str, most: int = 60) -> str:
    return repr(line if len(line) <= most else line[: most - 3] + "...")
