"""Reader of the King James Bible in the package bible-kjv-text: windows of compressed text.

The file begins with "EC02Compressed Data File". From byte 84 on, big-endian integers give the size
of a window, the number of windows and the offset of each. A window is the output of Unix
`compress` without its three header bytes. Text lines look like "Ge1:1 In the beginning ...".
"""

from __future__ import annotations

import re
import struct

MAGIC = b"EC02Compressed Data File"
CLEAR = 256
MOST_WINDOWS = 1_000
VERSE = re.compile(r"([1-3]?[A-Z][A-Za-z]*)(\d{1,3}):(\d{1,3}) (.+)")

#: Books by the file's own abbreviation, in its order.
_BOOKS = """
Ge=Genesis Exo=Exodus Lev=Leviticus Num=Numbers Deu=Deuteronomy Josh=Joshua Jdgs=Judges
Ruth=Ruth 1Sm=1_Samuel 2Sm=2_Samuel 1Ki=1_Kings 2Ki=2_Kings 1Chr=1_Chronicles 2Chr=2_Chronicles
Ezra=Ezra Neh=Nehemiah Est=Esther Job=Job Psa=Psalms Prv=Proverbs Eccl=Ecclesiastes
SSol=Song_of_Solomon Isa=Isaiah Jer=Jeremiah Lam=Lamentations Eze=Ezekiel Dan=Daniel Hos=Hosea
Joel=Joel Amos=Amos Obad=Obadiah Jonah=Jonah Mic=Micah Nahum=Nahum Hab=Habakkuk Zep=Zephaniah
Hag=Haggai Zec=Zechariah Mal=Malachi Mat=Matthew Mark=Mark Luke=Luke John=John Acts=Acts
Rom=Romans 1Cor=1_Corinthians 2Cor=2_Corinthians Gal=Galatians Eph=Ephesians Phi=Philippians
Col=Colossians 1Th=1_Thessalonians 2Th=2_Thessalonians 1Tim=1_Timothy 2Tim=2_Timothy Titus=Titus
Phmn=Philemon Heb=Hebrews Jas=James 1Pet=1_Peter 2Pet=2_Peter 1Jn=1_John 2Jn=2_John 3Jn=3_John
Jude=Jude Rev=Revelation
"""
BOOKS = dict(book.replace("_", " ").split("=") for book in _BOOKS.split())


def read_bible(content: bytes) -> dict[str, str]:
    """Return the books by name: a heading for each chapter, a line for each verse.

    Raises ValueError if the file does not have this format.
    """
    chapters: dict[tuple[str, int], list[str]] = {}
    text = decompress(content)
    if not text.isascii():
        raise ValueError("bible.data is damaged: its text must be ASCII")
    for line in text.decode("ascii").split("\n"):
        if found := VERSE.fullmatch(line.strip()):
            chapters.setdefault((found[1], int(found[2])), []).append(found[4])
    unknown = {book for book, _ in chapters} - BOOKS.keys()
    if unknown or len({book for book, _ in chapters}) != len(BOOKS):
        raise ValueError(f"bible.data must have {len(BOOKS)} known books, got {sorted(unknown)}")
    books: dict[str, list[str]] = {name: [] for name in BOOKS.values()}
    for (book, number), verses in chapters.items():
        books[BOOKS[book]].append("\n".join([f"{BOOKS[book]} {number}", "", *verses]))
    return {name: "\n\n".join(parts) + "\n" for name, parts in books.items()}


def decompress(content: bytes) -> bytes:
    """Return the text of the file, decompressed; raise ValueError if it is damaged."""
    if not content.startswith(MAGIC) or len(content) < 96:
        raise ValueError("bible.data must begin with 'EC02Compressed Data File'")
    size, count = struct.unpack(">2I", content[84:92])
    if not 0 < count <= MOST_WINDOWS or len(content) < 92 + 4 * count:
        raise ValueError(f"bible.data must have up to {MOST_WINDOWS} windows, got {count}")
    starts = struct.unpack(f">{count}I", content[92 : 92 + 4 * count])
    ends = (*starts[1:], len(content))
    return b"".join(
        unpack(content[start:end], size) for start, end in zip(starts, ends, strict=True)
    )


def unpack(codes: bytes, most: int) -> bytes:
    """Unpack the output of Unix compress, up to `most` bytes.

    Codes have 9 bits and, as the table grows, up to 16. They come in groups of eight: when their
    size changes, the rest of the group is unused.
    """
    table = [bytes([i]) for i in range(256)] + [b""]
    parts: list[bytes] = []
    place = group = total = 0  # in bits; in bits, where the group begins; bytes unpacked
    bits, before = 9, b""
    while place + bits <= 8 * len(codes) and total < most:
        first = place >> 3
        window = int.from_bytes(codes[first : first + 4], "little")
        code = window >> (place & 7) & ((1 << bits) - 1)
        place += bits
        full = len(table) + bool(before) >= 1 << bits and bits < 16
        if code == CLEAR or full:
            place = group = group - (group - place) // (8 * bits) * (8 * bits)
        if code == CLEAR:
            del table[257:]
            bits, before = 9, b""
            continue
        if code > len(table) or (code == len(table) and not before):
            raise ValueError(f"bible.data is damaged: code {code} must be below {len(table)}")
        entry = table[code] if code < len(table) else before + before[:1]
        if before and len(table) < 1 << 16:
            table.append(before + entry[:1])
        parts.append(entry)
        total += len(entry)
        bits, before = bits + full, entry
    return b"".join(parts)[:most]
