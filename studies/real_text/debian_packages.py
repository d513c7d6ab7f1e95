"""Small Debian packages, as dpkg would build them, and Unix compress, for tests of readers."""

import hashlib
import io
import lzma
import struct
import tarfile
from dataclasses import replace

from real_text import obtain


def ar(members):
    """An ar archive of (name, content) pairs."""
    parts = [b"!<arch>\n"]
    for name, content in members:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        parts += [head.encode(), content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


def tar_xz(files, links=()):
    """A tar of contents by path, as dpkg names them, and of links to other places."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"./{path}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for path, target in links:
            entry = tarfile.TarInfo(f"./{path}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return lzma.compress(held.getvalue())


def deb(files, links=(), data="data.tar.xz"):
    """A package of contents by path."""
    control = tar_xz({"control": b"Package: test\n"})
    return ar(
        [("debian-binary", b"2.0\n"), ("control.tar.xz", control), (data, tar_xz(files, links))]
    )


def compress(text):
    """The output of Unix compress, without its three header bytes."""
    table = {bytes([i]): i for i in range(256)}
    size, bits, codes, groups, word = 257, 9, [], [], b""
    for byte in text:
        longer = word + bytes([byte])
        if longer in table:
            word = longer
            continue
        codes.append(table[word])
        if size < 1 << 16:
            table[longer], size = size, size + 1
        if size > 1 << bits and bits < 16:  # the reader's table is one entry behind
            groups.append((bits, codes))
            bits, codes = bits + 1, []
        word = bytes([byte])
    groups.append((bits, [*codes, table[word]] if word else codes))
    packed = b""
    for i, (width, some) in enumerate(groups):
        number = sum(code << (width * place) for place, code in enumerate(some))
        count = len(some) if i == len(groups) - 1 else -(-len(some) // 8) * 8
        packed += number.to_bytes((count * width + 7) // 8, "little")
    return packed


def bible_data(text, window):
    """The file bible.data that contains this text."""
    parts = [compress(text[i : i + window]) for i in range(0, len(text), window)]
    starts, place = [], 92 + 4 * len(parts)
    for part in parts:
        starts.append(place)
        place += len(part)
    head = b"EC02Compressed Data File".ljust(84, b"\0") + struct.pack(">2I", window, len(parts))
    return head + struct.pack(f">{len(parts)}I", *starts) + b"".join(parts)


def pinned_to(part, content):
    """A part of the catalog whose file has this content."""
    digest = hashlib.sha256(content).hexdigest()
    return replace(part, file=replace(part.file, size=len(content), sha256=digest))


def without_apt(monkeypatch, answers):
    """Let urlopen return these answers by URL, and fail for other URLs."""
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        if url not in answers:
            raise obtain.URLError("no network")
        return io.BytesIO(answers[url])

    monkeypatch.setattr(obtain.shutil, "which", lambda _: None)
    monkeypatch.setattr(obtain, "urlopen", urlopen)
    return asked
