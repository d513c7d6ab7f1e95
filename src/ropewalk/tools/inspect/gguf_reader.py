"""The metadata of a GGUF file, by the names that llama.cpp reads; errors name the key.

The header is checked first: every count is bounded and fits into the file. `gguf.GGUFReader` trusts
it: a count of 2^60 makes it loop for years. It also takes 14 s for the vocabulary of Llama 3, so
long lists are skipped here.
Source: ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.checks import shown
from ropewalk.files import open_regular, shown_path

# Bounds, each many times what published files have.
MOST_ENTRIES = 65_536  # of metadata, and of tensors: 70 and 2,000
MOST_STRING = 2**24  # bytes: templates have 100 kB
MOST_VALUES = 8_000_000  # of all lists: vocabularies and merges have 1,000,000
LONGEST_READ = 1_024  # entries of a list that is read: one for each layer
MOST_READ = 65_536  # entries of all lists that are read
MOST_DIMENSIONS = 8

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes by type


class _Cursor:
    """A place in a mapped file; reading past the end is an error."""

    def __init__(self, data: Any, size: int, order: str) -> None:
        self.data, self.size, self.order, self.at = data, size, order, 0

    def take(self, code: str) -> int:
        """Return the next number, by its code in `struct`."""
        what = struct.Struct(self.order + code)
        self.skip(what.size)
        return int(what.unpack_from(self.data, self.at - what.size)[0])

    def skip(self, count: int) -> None:
        """Pass over bytes. Raises ValueError if the file has fewer."""
        if count > self.size - self.at:
            raise ValueError(
                f"it is truncated: byte {self.at:,} announces {shown(count)} more, and the file "
                f"has {self.size:,}"
            )
        self.at += count

    def values(self, kind: int, count: int = 1) -> None:
        """Pass over values of a type."""
        if kind == STRING:
            for _ in range(count):
                self.string()
        elif kind in SIZES:
            self.skip(count * SIZES[kind])
        else:
            raise ValueError(f"a value has type {kind}, which is not known or a list of lists")

    def string(self) -> None:
        """Pass over a string."""
        length = self.take("Q")
        if length > MOST_STRING:
            raise ValueError(f"a string has {length:,} bytes, at most {MOST_STRING:,} are allowed")
        self.skip(length)

    def count(self, what: str, most: int, least_bytes: int) -> int:
        """Return a count of entries that each take some bytes."""
        count = self.take("Q")
        if count > most:
            raise ValueError(f"it announces {count:,} {what}, at most {most:,} are allowed")
        if count * least_bytes > self.size - self.at:
            raise ValueError(
                f"it is truncated: {count:,} {what} do not fit into {self.size:,} bytes"
            )
        return count


def check_header(path: Path) -> dict[int, int]:
    """Return the size of each list that is too long to read, by its offset.

    Raises ValueError that names the file and the reason.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if size < 24:
                raise ValueError(f"it is truncated: {size} bytes, the header alone takes 24")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _check(data, size)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{shown_path(path)} is not a GGUF file that can be read: {error}"
            ) from None


def _check(data: Any, size: int) -> dict[int, int]:
    if data[:4] != b"GGUF":
        raise ValueError(f"it begins with {bytes(data[:4])!r}, not with b'GGUF'")
    # A version below 65,536 has two zero bytes: first, if the file is big-endian.
    cursor = _Cursor(data, size, ">" if data[4:6] == b"\0\0" else "<")
    cursor.at = 4
    version = cursor.take("I")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}, and 2 and 3 are known")
    tensors = cursor.count("tensors", MOST_ENTRIES, 24)
    entries = cursor.count("metadata entries", MOST_ENTRIES, 13)
    skipped = _check_metadata(cursor, entries)
    ends = [_check_tensor(cursor) for _ in range(tensors)]
    if ends and cursor.at + max(ends) > size:
        raise ValueError(
            f"it is truncated: its tensors take {cursor.at + max(ends):,} bytes, it has {size:,}"
        )
    return skipped


def _check_metadata(cursor: _Cursor, entries: int) -> dict[int, int]:
    skipped: dict[int, int] = {}
    values = read = 0
    for _ in range(entries):
        cursor.string()
        kind = cursor.take("I")
        if kind != ARRAY:
            cursor.values(kind)
            continue
        start = cursor.at
        inner = cursor.take("I")
        count = cursor.count("list entries", MOST_VALUES, 8 if inner == STRING else 1)
        values += count
        if values > MOST_VALUES:
            raise ValueError(f"its lists have more than {MOST_VALUES:,} entries")
        cursor.values(inner, count)
        if count > LONGEST_READ or read + count > MOST_READ:
            skipped[start] = cursor.at - start
        else:
            read += count
    return skipped


def _check_tensor(cursor: _Cursor) -> int:
    """Return the end of a tensor's data, from the end of the header on."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    cursor.string()
    dimensions = cursor.take("I")
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(f"a tensor has {dimensions:,} axes, at most {MOST_DIMENSIONS} are allowed")
    count = 1
    for _ in range(dimensions):
        count *= cursor.take("Q")
    kind, offset = cursor.take("I"), cursor.take("Q")
    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise ValueError(f"a tensor has type {kind}, which gguf does not know") from None
    return offset + count // block * size


def read_fields(path: Path) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Return a file's metadata, without long lists, and its tensors of rope factors."""
    from gguf import GGUFReader

    skipped = check_header(path)

    class Reader(GGUFReader):  # type: ignore[misc, unused-ignore]
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if int(orig_offs) in skipped and int(raw_type) == ARRAY:
                return skipped[int(orig_offs)], [], [], []
            return super()._get_field_parts(orig_offs, raw_type)

    try:
        reader = Reader(path)
        # A list that is passed over has no types.
        fields = {name: field.contents() for name, field in reader.fields.items() if field.types}
        tensors = {
            tensor.name: tensor.data.astype("float64").ravel().tolist()
            for tensor in reader.tensors
            if tensor.name.startswith("rope_f") and tensor.n_elements <= LONGEST_READ * 4
        }
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{shown_path(path)} is not a GGUF file that can be read: {shown(reason, 200)}"
        ) from None
    return fields, tensors


SCALING = "rope.scaling"


class GgufValues:
    """Metadata of one architecture. `get` and the others take keys without the architecture."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields
        architecture = fields.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise ValueError(
                f"general.architecture must name the model's architecture, got "
                f"{shown(architecture)}; a file of a vocabulary or an adapter has no rope"
            )
        self.architecture = architecture

    def key(self, name: str) -> str:
        """Return the complete key of a name."""
        return f"{self.architecture}.{name}"

    def get(self, name: str) -> Any:
        """Return a value, or None if the file does not have it."""
        return self.fields.get(self.key(name))

    def integer(self, name: str) -> int | None:
        """Return an integer of at least 0; of a list by layers, the largest."""
        value = self.get(name)
        if isinstance(value, list) and value:
            value = max((each for each in value if isinstance(each, int)), default=None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{self.key(name)} must be an integer, got {shown(value)}")
        return value

    def number(self, name: str) -> float | None:
        """Return a finite number; 0 is the same as none, as in llama.cpp."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{self.key(name)} must be a number, got {shown(value)}")
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{self.key(name)} must be finite and not negative, got {value}")
        return float(value) or None

    def text(self, name: str) -> str | None:
        """Return a string."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{self.key(name)} must be a string, got {shown(value)}")
        return value

    def required(self, name: str) -> int:
        """Return an integer above 0, which the file must have."""
        value = self.integer(name)
        if not value:
            raise ValueError(f"{self.key(name)} must be given, got none")
        return value

    def sections(self) -> Sequence[int] | None:
        """Return the pairs of each axis of M-RoPE, or None."""
        value = self.get("rope.dimension_sections")
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise ValueError(
                f"{self.key('rope.dimension_sections')} must be a list of integers, "
                f"got {shown(value)}"
            )
        return [each for each in value if each] or None
