"""Files of a Debian package, read without dpkg: an ar archive that contains a .tar.xz file.

Nothing is unpacked to disk: names in the archive are only compared, so none of them can write
outside a folder. Source: deb(5), ar(5).
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable

from ropewalk.checks import shown

MAGIC = b"!<arch>\n"
HEADER = 60  # bytes before a member: its name 16, date 12, owners 12, mode 8, size 10, end mark 2
MOST_UNPACKED = 2**29  # limit in bytes for a package; the largest one read here has a third of it
MOST_MEMORY = 2**28  # bytes for unpacking; xz at its highest setting needs a quarter of it


def members(content: bytes) -> dict[str, bytes]:
    """Return the members of an ar archive by name.

    Raises ValueError if the content is not an ar archive or is truncated.
    """
    if not content.startswith(MAGIC):
        raise ValueError("it is not a Debian package: it does not begin like an ar archive")
    found: dict[str, bytes] = {}
    place = len(MAGIC)
    while place < len(content):
        header = content[place : place + HEADER]
        size = header[48:58].rstrip(b" ")
        if len(header) < HEADER or header[58:] != b"`\n" or not size.isdigit():
            raise ValueError(f"it is not a complete Debian package: no member at byte {place}")
        place += HEADER
        end = place + int(size)
        if end > len(content):
            raise ValueError(f"it is truncated: {len(content)} bytes, its members need {end}")
        name = header[:16].decode("ascii", "replace").rstrip(" ").removesuffix("/")
        found[name] = content[place:end]
        place = end + end % 2  # members begin at even bytes
    return found


def read_deb(content: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the regular files of a package for which `wanted(path)` is true, path without ./.

    Raises ValueError if the package is damaged, packed in another way or too large when unpacked.
    """
    inside = members(content)
    if "data.tar.xz" not in inside:
        data = next((name for name in inside if name.startswith("data.")), "no data")
        raise ValueError(
            f"it must contain data.tar.xz, got {shown(data)}, which Python's standard library may "
            "not read; use the required version of the package"
        )
    found: dict[str, bytes] = {}
    try:
        unpacked = io.BytesIO(_unxz(inside["data.tar.xz"]))
        with tarfile.open(fileobj=unpacked, mode="r:") as tar:
            for entry in tar:
                path = entry.name.removeprefix("./")
                if entry.isreg() and wanted(path) and (file := tar.extractfile(entry)):
                    found[path] = file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"its data.tar.xz is damaged: {error}") from None
    return found


def _unxz(packed: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)
    try:
        content = unpacker.decompress(packed, MOST_UNPACKED + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"its data.tar.xz is damaged: {error}") from None
    if len(content) > MOST_UNPACKED:
        raise ValueError(f"it unpacks to more than {MOST_UNPACKED:,} bytes, the limit of a package")
    if not unpacker.eof:
        raise ValueError("its data.tar.xz is truncated")
    return content
