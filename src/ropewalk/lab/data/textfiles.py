"""The two sides of a corpus, read from files; what is wrong is said by file and line.

Text is UTF-8, plain or gzipped, one sentence a line, left as it is but for white space at its ends.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import json
import stat
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

Pair = tuple[str, str]

MOST_CHARACTERS = 100_000  # of a line that is a sentence, in bytes; web corpora end at some 20,000
PART_BYTES = 2**20  # of running text, read at a time
# Of a gzipped file: text is packed to a third, a file of one line over and over to a thousandth.
MOST_RATIO = 100
MOST_UNPACKED = 2**24
SHOWN = 200  # characters of what a line has, in a message


class CorpusError(ValueError):
    """A corpus that cannot be used as it is; the message names the file, the line and the rule."""


def read_sides(
    source_path: Path, target_path: Path, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of two files, line by line; what was left out is added to `notes`.

    Raises:
        CorpusError: a file is missing or is not whole UTF-8, the files differ in length, or one
            side of a pair is empty.
    """
    sources, targets = list(_read_lines(source_path)), list(_read_lines(target_path))
    if len(sources) != len(targets):
        longer, lines = max((source_path, sources), (target_path, targets), key=lambda s: len(s[1]))
        first = min(len(sources), len(targets))
        raise CorpusError(
            f"the two sides differ in length: {source_path} has {len(sources)} lines and "
            f"{target_path} has {len(targets)}; line {first + 1} of {longer} is the first without "
            f"a partner: {_excerpt(lines[first])}"
        )
    rows = list(zip(sources, targets, strict=True))
    return _pairs(rows, str(source_path), str(target_path), split, notes)


def _pairs(
    rows: Sequence[Pair], source_file: str, target_file: str, split: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Drop rows empty on both sides, with a note; an empty line on one side only is an error."""
    for number, (source, target) in enumerate(rows, start=1):
        if bool(source) != bool(target):
            empty, other = (target_file, source_file) if source else (source_file, target_file)
            raise CorpusError(
                f"{empty}, line {number} is empty and its partner in {other} is not: "
                f"{_excerpt(source or target)}; the sides may be out of step. Fill the line, or "
                "delete it on both sides"
            )
    pairs = tuple((source, target) for source, target in rows if source)
    if not pairs:
        raise CorpusError(f"{source_file} is empty: the {split} split has no sentence pair")
    if len(pairs) < len(rows):
        notes.append(f"{split}: {len(rows) - len(pairs)} lines empty on both sides left out")
    return pairs


def read_jsonl(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of a file of JSON objects, a line each, with fields `source` and `target`.

    Raises:
        CorpusError: as `read_sides`, and a line that is not such an object.
    """
    rows: list[Pair] = []
    for number, line in enumerate(_read_lines(path), start=1):
        try:
            row = json.loads(line) if line else {source: "", target: ""}
        except (ValueError, RecursionError) as error:  # too deep, or a number of too many digits
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise CorpusError(f"{path}, line {number} is not JSON: {reason}") from None
        for field in (source, target):
            if not isinstance(row, dict) or not isinstance(row.get(field), str):
                there = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                there = there if len(there) <= SHOWN else there[: SHOWN - 1] + "…"
                raise CorpusError(
                    f"{path}, line {number} has no text in field {field!r}; it has {there}"
                )
            _check_characters(row[field], path, number)
        rows.append((_in_one_line(row[source]), _in_one_line(row[target])))
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def read_table(
    path: Path, split: str, source: str, target: str, notes: list[str]
) -> tuple[Pair, ...]:
    """Give the pairs of a CSV or TSV file: those of its two columns, or of the columns it names.

    A first row that has both `source` and `target` names the columns; else there must be two, the
    source's first. CSV may quote a field; in TSV a quotation mark is text.

    Raises:
        CorpusError: as `read_sides`, and a row that has not these columns.
    """
    rows: list[Pair] = []
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
        rows.append((_in_one_line(one), _in_one_line(other)))
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    tabs = path.name.removesuffix(".gz").endswith(".tsv")
    if tabs:
        for number, line in enumerate(_read_lines(path), start=1):
            yield number, line.split("\t") if line else []
        return
    csv.field_size_limit(MOST_CHARACTERS)
    reader = csv.reader((line + "\n" for line in _read_lines(path)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise CorpusError(f"{path}, line {reader.line_num} cannot be read: {error}") from None


def _in_one_line(text: str) -> str:
    # A line end inside a sentence would put hypotheses, one to a line, out of step.
    return text.replace("\n", " ").strip()


def _read_lines(path: Path) -> Iterator[str]:
    r"""Give the stripped lines of a UTF-8 file, plain or gzipped, one at a time.

    Lines end at "\n" alone ("\r" before it goes with the white space): str.splitlines would also
    split at U+2028 or form feeds, on one side and not on the other.
    """
    offset = 0
    for number, raw in enumerate(_raw_lines(path, MOST_CHARACTERS), start=1):
        if len(raw) > MOST_CHARACTERS:
            raise CorpusError(
                f"{path}, line {number} is longer than {MOST_CHARACTERS} bytes, the most of one "
                f"sentence: one sentence a line"
            )
        line = _decode(raw, path, number, offset)
        offset += len(raw)
        line = line.removeprefix("\ufeff") if number == 1 else line
        _check_characters(line, path, number)
        yield line.strip()


def read_text(path: Path) -> str:
    """Give the text of a UTF-8 file, plain or gzipped, as it is but for a byte order mark.

    Raises:
        CorpusError: the file is missing, cannot be read or is not whole UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts, offset, line = [], 0, 1
    for raw in chain(_raw_lines(path, PART_BYTES), [b""]):
        held = len(decoder.getstate()[0])  # bytes of a character that is not whole yet
        try:
            part = decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            # The error's object begins with what was held.
            raise _not_utf8(path, line, error, offset - held) from None
        _check_characters(part, path, line)
        parts.append(part)
        offset += len(raw)
        line += raw.count(b"\n")
    return "".join(parts).removeprefix("\ufeff")


def _decode(raw: bytes, path: Path, line: int, offset: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, line, error, offset) from None


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError, offset: int) -> CorpusError:
    return CorpusError(
        f"{path}, line {line} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset "
        f"{offset + error.start} of the text ({error.reason}); convert the file to UTF-8"
    )


def _check_characters(text: str, path: Path, line: int) -> None:
    """Refuse what no text has, and what could not be written again: NUL, half of a character."""
    if "\0" in text:
        line += text.count("\n", 0, text.index("\0"))
        raise CorpusError(f"{path}, line {line} has a NUL character, which no text has; remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise CorpusError(f"{path}, line {line} has a surrogate, half of a character; remove it")


def _raw_lines(path: Path, most: int) -> Iterator[bytes]:
    """Give the bytes of a file line by line, unpacked where it is gzipped.

    What follows the first ``most`` bytes of a line comes by itself; of gzip, so much is unpacked as
    text can be.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            reason = "Is a directory" if path.is_dir() else "it is no regular file"
            raise CorpusError(f"{path} cannot be read: {reason}")
        size = path.stat().st_size
        with path.open("rb") as file:
            # No UTF-8 text can begin with gzip's two marks, so a gzipped file needs no ending.
            packed = path.suffix == ".gz" or file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not packed:
                while raw := file.readline(most + 1):
                    yield raw
                return
            limit, unpacked = MOST_UNPACKED + MOST_RATIO * size, 0
            with gzip.GzipFile(fileobj=file) as unzipped:
                while raw := unzipped.readline(most + 1):
                    unpacked += len(raw)
                    if unpacked > limit:
                        raise CorpusError(
                            f"{path} unpacks to more than {limit} bytes, over {MOST_RATIO} times "
                            f"its size: that is no text; unpack it yourself if it is"
                        )
                    yield raw
    except CorpusError:
        raise
    except FileNotFoundError:
        raise CorpusError(f"no file {path}{nearest(path)}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # such as a NUL in its name
        raise CorpusError(f"{str(path)!r} is no name of a file: {error}") from None


def nearest(path: Path, names: Sequence[str] = ()) -> str:
    """Say what is there instead of `path`: the nearest name, or the missing folder."""
    parent = path.parent
    if not parent.is_dir():
        return f" (and no folder {parent})"
    there = {str(entry.relative_to(parent)): str(entry) for entry in parent.iterdir()}
    there.update({name: name for name in names})
    close = difflib.get_close_matches(path.name, there, n=1)
    return f" (nearest: {there[close[0]]})" if close else ""


def _excerpt(line: str, most: int = 60) -> str:
    return repr(line if len(line) <= most else line[: most - 3] + "...")
