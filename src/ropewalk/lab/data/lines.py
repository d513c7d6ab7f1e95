"""Lines and texts of files in UTF-8, plain or gzipped, read as they come and within bounds."""

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

MOST_CHARACTERS = 100_000  # of a line that is a sentence, in bytes; web corpora end at some 20,000
PART_BYTES = 2**20  # of running text, read at a time
# Of a gzipped file: text is packed to a third, a file of one line over and over to a thousandth.
MOST_RATIO = 50
MOST_UNPACKED = 2**19  # bytes, up to which the ratio is no matter
PIECE_BYTES = 8192  # of a gzipped file, read at a time


class CorpusError(ValueError):
    """A corpus that cannot be used as it is; the message names the file, the line and the rule."""


def read_lines(path: Path) -> Iterator[str]:
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
        check_characters(line, path, number)
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
    """Refuse what no text has, and what could not be written again: NUL, half of a character."""
    if "\0" in text:
        line += text.count("\n", 0, text.index("\0"))
        raise CorpusError(f"{path}, line {line} has a NUL character, which no text has; remove it")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise CorpusError(f"{path}, line {line} has a surrogate, half of a character; remove it")


def _raw_lines(path: Path, most: int) -> Iterator[bytes]:
    """Give the bytes of a file line by line, unpacked where it is gzipped.

    What follows the first `most` bytes of a line comes by itself; of gzip, so much is unpacked as
    text can be.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            reason = "Is a directory" if path.is_dir() else "it is no regular file"
            raise CorpusError(f"{path} cannot be read: {reason}")
        with path.open("rb") as plain:
            # No UTF-8 text can begin with gzip's two marks, so a gzipped file needs no ending.
            packed = path.suffix == ".gz" or plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            while not packed and (raw := plain.readline(most + 1)):
                yield raw
        if packed:
            yield from _unpacked_lines(path, most)
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


class _InPieces(FileIO):
    """A file that is read some bytes at a time, so that its place tells how far it is unpacked."""

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
                # Of what was read so far: a bomb is known by its beginning.
                limit = MOST_UNPACKED + MOST_RATIO * file.tell()
            if unpacked > limit:
                raise CorpusError(
                    f"{path} unpacks to more than {limit} bytes, over {MOST_RATIO} times its "
                    f"size: that is no text; unpack it yourself if it is"
                )
            yield raw


def nearest(path: Path, names: Sequence[str] = ()) -> str:
    """Say what is there instead of `path`: the nearest name, or the missing folder."""
    parent = path.parent
    if not parent.is_dir():
        return f" (and no folder {parent})"
    there = {str(entry.relative_to(parent)): str(entry) for entry in parent.iterdir()}
    there.update({name: name for name in names})
    close = difflib.get_close_matches(path.name, there, n=1)
    return f" (nearest: {there[close[0]]})" if close else ""
