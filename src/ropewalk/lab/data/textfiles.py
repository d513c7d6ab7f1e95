"""Bounded reading of texts, lines and sentence pairs from files; errors name the file and the line.

Text is UTF-8, plain or gzipped. Pairs have one sentence per line, in two files or in one JSON
Lines, CSV or TSV file. Only white space at the ends of a line is removed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader, FileIO
from itertools import chain, zip_longest
from pathlib import Path

from ropewalk.checks import closest
from ropewalk.files import json_problem, shown_path

Pair = tuple[str, str]

MOST_CHARACTERS = 100_000  # bytes in a line; the longest in web corpora have about 20,000
PART_BYTES = 2**20  # bytes of running text per read
# Unpacked size over gzipped size. Text has about 3; one line repeated many times has about 1000.
MOST_RATIO = 50
MOST_UNPACKED = 2**19  # bytes; the ratio is checked only beyond this size
PIECE_BYTES = 8192  # bytes of a gzipped file per read
SHOWN = 200  # maximum number of characters of a line in a message
#: Endings of files that contain both sides.
BOTH_SIDES = ("jsonl", "csv", "tsv")
VALIDATION_NAMES = ("validation", "valid", "val", "dev")


class CorpusError(ValueError):
    """A corpus that cannot be used; the message names the file, the line and the rule."""


def hash_of(text: str) -> bytes:
    """Return the SHA-256 of a text, which decides whether it is held out."""
    return hashlib.sha256(text.encode()).digest()


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the stripped lines of a UTF-8 file, plain or gzipped.

    Only "\n" ends a line ("\r" before it is stripped as white space). str.splitlines would also
    split at U+2028 or form feeds, which may occur on one side of a corpus only.
    """
    offset = 0
    for number, raw in enumerate(_raw_lines(path, MOST_CHARACTERS), start=1):
        if len(raw) > MOST_CHARACTERS:
            raise CorpusError(
                f"{path}, line {number} is longer than {MOST_CHARACTERS} bytes, the limit for "
                f"one sentence; write one sentence per line"
            )
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error, offset) from None
        offset += len(raw)
        line = line.removeprefix("\ufeff") if number == 1 else line
        check_characters(line, path, number)
        yield line.strip()


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, plain or gzipped, unchanged except for a byte order mark.

    Raises:
        CorpusError: if the file is missing, cannot be read or is not valid UTF-8.
    """
    raw = b"".join(_raw_lines(path, PART_BYTES))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, 1 + raw.count(b"\n", 0, error.start), error, 0) from None
    check_characters(text, path, 1)
    return text.removeprefix("\ufeff")


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError, offset: int) -> CorpusError:
    return CorpusError(
        f"{path}, line {line} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset "
        f"{offset + error.start} of the text ({error.reason}); convert the file to UTF-8"
    )


def check_characters(text: str, path: Path, line: int) -> None:
    """Raise CorpusError on NUL, which no text has, and on surrogates, which cannot be encoded."""
    if "\0" in text:
        line += text.count("\n", 0, text.index("\0"))
        raise CorpusError(f"{path}, line {line} has a NUL character; remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise CorpusError(f"{path}, line {line} has a surrogate, half of a character; remove it")


def _raw_lines(path: Path, most: int) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, unpacked if it is gzipped.

    A line longer than `most` bytes comes in several parts. A gzipped file is unpacked only up to
    MOST_RATIO times its size.
    """
    try:
        if path.exists() and not path.is_file():
            reason = "Is a directory" if path.is_dir() else "it is not a regular file"
            raise CorpusError(f"{path} cannot be read: {reason}")
        with path.open("rb") as plain:
            # No UTF-8 text can begin with gzip's two magic bytes, so a gzipped file is recognized
            # without the ending .gz.
            packed = path.suffix == ".gz" or plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            while not packed and (raw := plain.readline(most + 1)):
                yield raw
        if packed:
            yield from _unpacked_lines(path, most)
    except CorpusError:
        raise
    except FileNotFoundError:
        raise CorpusError(f"there is no file {shown_path(path)}{nearest(path)}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise CorpusError(f"{shown_path(path)} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # such as a NUL in its name
        raise CorpusError(f"{str(path)!r} is not a valid file name: {error}") from None


class _InPieces(FileIO):
    """A file that is read in small pieces, so that `tell` shows how much of it is unpacked."""

    def read(self, size: int | None = -1, /) -> bytes:
        asked = PIECE_BYTES if size is None or size < 0 else min(size, PIECE_BYTES)
        return super().read(asked) or b""


def _unpacked_lines(path: Path, most: int) -> Iterator[bytes]:
    unpacked, limit = 0, MOST_UNPACKED
    # GzipFile's own readline is written in Python, and slow on short lines.
    with (
        _InPieces(path) as file,
        gzip.GzipFile(fileobj=file) as opened,
        BufferedReader(opened) as unzipped,
    ):
        while raw := unzipped.readline(most + 1):
            unpacked += len(raw)
            if unpacked > limit:
                # Measured on the bytes read so far: a gzip bomb is detected at its beginning.
                limit = MOST_UNPACKED + MOST_RATIO * file.tell()
            if unpacked > limit:
                raise CorpusError(
                    f"{path} unpacks to more than {limit} bytes, over {MOST_RATIO} times its "
                    f"size, unlike text; if it is text, unpack it yourself"
                )
            yield raw


def nearest(path: Path, names: Sequence[str] = ()) -> str:
    """Return a hint for a missing `path`: the nearest existing name, or the missing folder."""
    parent = path.parent
    if not os.path.isdir(parent):
        return f" (and no folder {shown_path(parent)})"
    there = {str(entry.relative_to(parent)): str(entry) for entry in parent.iterdir()}
    there.update({name: name for name in names})
    close = closest(path.name, there)
    return f" (nearest: {there[close]})" if close else ""


def read_pairs(
    paths: Mapping[str, Path], split: str, source: str, target: str, notes: list[str]
) -> Iterator[Pair]:
    """Yield the pairs of a split: of one file, named by its ending, or of a file per language.

    Lines of JSON are objects with fields `source` and `target`. In CSV and TSV, a first row that
    has both names the columns; otherwise there must be two columns, the source first. CSV may quote
    a field; in TSV a quotation mark is text. Appends to `notes` what was left out.

    Raises:
        CorpusError: as `read_sides`, and if a row lacks a field.
    """
    ending = next((ending for ending in BOTH_SIDES if ending in paths), None)
    if ending is None:
        return read_sides(paths[source], paths[target], split, notes)
    path = paths[ending]
    rows = (_json_rows if ending == "jsonl" else _table_rows)(path, source, target)
    return checked_pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def read_sides(
    source_path: Path, target_path: Path, split: str, notes: list[str]
) -> Iterator[Pair]:
    """Yield the pairs of two files, line by line; append to `notes` what was left out.

    Raises:
        CorpusError: if a file is missing or is not valid UTF-8, the files differ in length, or
            one side of a pair is empty.
    """
    rows = _side_by_side(source_path, target_path)
    return checked_pairs(rows, str(source_path), str(target_path), split, notes)


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
    if path.name.removesuffix(".gz").endswith(".tsv"):
        rows = (line.split("\t") if line else [] for line in read_lines(path))
        yield from enumerate(rows, start=1)
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
