"""Bounded reading of lines and texts from UTF-8 files, plain or gzipped."""

from __future__ import annotations

import codecs
import difflib
import gzip
import stat
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedReader, FileIO
from itertools import chain
from pathlib import Path

MOST_CHARACTERS = 100_000  # bytes in a line; the longest in web corpora have about 20,000
PART_BYTES = 2**20  # bytes of running text per read
# Unpacked size over gzipped size. Text has about 3; one line repeated many times has about 1000.
MOST_RATIO = 50
MOST_UNPACKED = 2**19  # bytes; the ratio is checked only beyond this size
PIECE_BYTES = 8192  # bytes of a gzipped file per read


class CorpusError(ValueError):
    """A corpus that cannot be used; the message names the file, the line and the rule."""


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
        line = _decode(raw, path, number, offset)
        offset += len(raw)
        line = line.removeprefix("\ufeff") if number == 1 else line
        check_characters(line, path, number)
        yield line.strip()


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, plain or gzipped, unchanged except for a byte order mark.

    Raises:
        CorpusError: if the file is missing, cannot be read or is not valid UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts, offset, line = [], 0, 1
    for raw in chain(_raw_lines(path, PART_BYTES), [b""]):
        held = len(decoder.getstate()[0])  # bytes of a character that is not complete yet
        try:
            part = decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            # The error's object begins with the held bytes.
            raise _not_utf8(path, line, error, offset - held) from None
        check_characters(part, path, line)
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
        if not stat.S_ISREG(path.stat().st_mode):
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
        raise CorpusError(f"there is no file {path}{nearest(path)}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}") from error
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
    if not parent.is_dir():
        return f" (and no folder {parent})"
    there = {str(entry.relative_to(parent)): str(entry) for entry in parent.iterdir()}
    there.update({name: name for name in names})
    close = difflib.get_close_matches(path.name, there, n=1)
    return f" (nearest: {there[close[0]]})" if close else ""
