"""The two sides of a corpus, read from files; what is wrong is said by file and line.

Text is UTF-8, plain or gzipped, one sentence a line, left as it is but for white space at its ends.
"""

from __future__ import annotations

import difflib
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

Pair = tuple[str, str]


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
    sources, targets = _read_lines(source_path), _read_lines(target_path)
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
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}, line {number} is not JSON: {error.msg}") from None
        for field in (source, target):
            if not isinstance(row, dict) or not isinstance(row.get(field), str):
                there = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                raise CorpusError(
                    f"{path}, line {number} has no text in field {field!r}; it has {there}"
                )
        # A line end inside a sentence would put hypotheses, one to a line, out of step.
        one, other = (row[field].replace("\n", " ").strip() for field in (source, target))
        rows.append((one, other))
    return _pairs(rows, f"{path} [{source}]", f"{path} [{target}]", split, notes)


def _read_lines(path: Path) -> list[str]:
    r"""Give the stripped lines of a UTF-8 file, plain or gzipped.

    Lines end at "\n" alone ("\r" before it goes with the white space): str.splitlines would also
    split at U+2028 or form feeds, on one side and not on the other.
    """
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.strip() for line in lines]


def read_text(path: Path) -> str:
    """Give the text of a UTF-8 file, plain or gzipped, as it is but for a byte order mark.

    Raises:
        CorpusError: the file is missing, cannot be read or is not whole UTF-8.
    """
    data = _read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{path}, line {line} is not UTF-8: byte 0x{data[error.start]:02x} at offset "
            f"{error.start} of the text ({error.reason}); convert the file to UTF-8"
        ) from None
    return text.removeprefix("\ufeff")


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorpusError(f"no file {path}{nearest(path)}") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}") from error
    # No UTF-8 text can begin with gzip's two marks, so a gzipped file needs no ending.
    if path.suffix != ".gz" and not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file: {error}") from None


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
