"""Files of a Debian package, read without dpkg: an ar archive that holds a tar packed with xz.

Nothing is unpacked to disk: names in the archive are only looked at, so none of them can lead
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
MOST_UNPACKED = 2**29  # bytes of a package; the largest read here has a third of it
MOST_MEMORY = 2**28  # bytes to unpack with; xz at its highest setting takes a quarter of it


def members(content: bytes) -> dict[str, bytes]:
    """Give the members of an ar archive by name.

    Raises ValueError where the archive is none or is cut short.
    """
    if not content.startswith(MAGIC):
        raise ValueError("it is not a Debian package: it does not begin as an ar archive")
    found: dict[str, bytes] = {}
    place = len(MAGIC)
    while place < len(content):
        header = content[place : place + HEADER]
        size = header[48:58].rstrip(b" ")
        if len(header) < HEADER or header[58:] != b"`\n" or not size.isdigit():
            raise ValueError(f"it is not a whole Debian package: no member at byte {place}")
        place += HEADER
        end = place + int(size)
        if end > len(content):
            raise ValueError(f"it is cut short: {len(content)} bytes, its members need {end}")
        name = header[:16].decode("ascii", "replace").rstrip(" ").removesuffix("/")
        found[name] = content[place:end]
        place = end + end % 2  # members begin at even bytes
    return found


def read_deb(content: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Give those regular files of a package whose path, without the leading ./, is wanted.

    Raises ValueError where the package is damaged, is packed in another way or unpacks to too much.
    """
    inside = members(content)
    if "data.tar.xz" not in inside:
        data = next((name for name in inside if name.startswith("data.")), "no data")
        raise ValueError(
            f"it must hold data.tar.xz, got {shown(data)}, which Python's standard library may not "
            "read; take the package of the version that is asked for"
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
        raise ValueError(f"it unpacks to more than {MOST_UNPACKED:,} bytes, the most of a package")
    if not unpacker.eof:
        raise ValueError("its data.tar.xz is damaged: it is cut short")
    return content
