"""Corpora for the fuzzer, by format: mostly well formed, with some difficult content.

Each function draws one file's bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from functools import cache

WORDS = ["Satz", "der", "ja", "x", "Österreich", "nicht", "日本", "👍", "a\u0301", "ß", "3,5", "'s"]
# Difficult but allowed.
ODD = ['"', '""', 'sagt "ja"', "a\tb", "a,b", "\u2028", "\x0c", "\xa0", "\ufeff", "\x1b", "\\"]
# Not allowed as, or in, a sentence.
WRONG = ["", " ", "a\0b", "\ud800", "a\nb", "a\r\nb", "x" * 100_001, "\udc80\ud800", "\x1f\x8b"]
VALUES = [None, True, 3, -1.5, 10**400, 1e308, [], {}, ["a"], {"de": "a"}, [[[{"a": [1]}]]]]
BOMBS = [b"\n", b"a", b"a\n", b"a\tb\n", b'"a\n', b"a,b\n", b"\0", b"{}\n"]
RAW = ["[" * 5_000, '{"a":' * 5_000, "9" * 6_000, "NaN", "1e999", "-", '"\\ud800"', '"\\u0000"']
RAW += ["-Infinity", '"\\ud83d\\ude00"', "nul", '{"de": "a", "de": "b"}']


def sentence(draw: random.Random) -> str:
    """Draw a sentence, sometimes with something odd or wrong in it."""
    words = draw.choices(WORDS, k=draw.randint(1, 6))
    if draw.random() < 0.1:
        words.insert(draw.randrange(len(words) + 1), draw.choice(ODD))
    if draw.random() < 0.01:
        words = [draw.choice(WRONG)]
    return " ".join(words)


def _pairs(draw: random.Random) -> list[tuple[str, str]]:
    return [(sentence(draw), f"{sentence(draw)} {i}") for i in range(draw.randint(1, 12))]


def lines(draw: random.Random) -> bytes:
    """Draw a file of JSON objects, one per line."""
    out = []
    for one, other in _pairs(draw):
        row: dict[str, object] = {"de": one, "en": other}
        if draw.random() < 0.2:  # an unknown field
            row[draw.choice(("id", "\ud800", "de ", "x" * 1_000))] = draw.choice(VALUES)
        if draw.random() < 0.02:
            row[draw.choice(("de", "en"))] = draw.choice(VALUES)
        line = json.dumps(row, ensure_ascii=draw.random() < 0.5)
        if draw.random() < 0.03:
            line = line[:-1] + f', "{draw.choice(("more", "de"))}": {draw.choice(RAW)}}}'
        if draw.random() < 0.02:
            line = draw.choice((*RAW, "", " ", "[]", '"text"'))
        out.append(line)
    return _encoded(draw, "".join(line + draw.choice(("\n", "\n", "\n", "\r\n")) for line in out))


def table(draw: random.Random, separator: str) -> bytes:
    """Draw a table of two or more columns; with commas, quoted in various ways."""
    rows: list[tuple[str, ...]] = list(_pairs(draw))
    if draw.random() < 0.3:
        rows = [(*row, sentence(draw)) for row in rows]
        rows.insert(0, ("de", "en", "id") if draw.random() < 0.8 else ("en", "de", "de"))
    elif draw.random() < 0.3:
        rows.insert(0, ("de", "en"))
    if draw.random() < 0.05:
        rows.insert(draw.randrange(len(rows)), ("a", "b", "c", "d"))
    if separator == "\t":
        return _encoded(draw, "".join("\t".join(row) + "\n" for row in rows))
    out = io.StringIO(newline="")
    quoting = draw.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC))
    ending = draw.choice(("\n", "\r\n"))
    csv.writer(out, quoting=quoting, lineterminator=ending).writerows(rows)
    return _encoded(draw, out.getvalue())


def sides(draw: random.Random, between: bytes) -> bytes:
    """Draw two files with one sentence per line, as one input with a mark between them."""
    one, other = zip(*_pairs(draw), strict=True)
    return between.join(_encoded(draw, "\n".join(side) + "\n") for side in (one, other))


def running_text(draw: random.Random) -> bytes:
    """Draw a text of some paragraphs."""
    texts = (sentence(draw) for _ in range(draw.choice((1, 30, 100))))
    return _encoded(draw, draw.choice(("\n", " ", "\r\n")).join(texts))


def gzipped(draw: random.Random) -> bytes:
    """Draw a gzipped file: complete, in several members, truncated, with a tail, or a bomb."""
    how = draw.random()
    if how < 0.1:
        return _bomb(draw.choice(BOMBS))
    makers = (lines, lambda d: table(d, ","), lambda d: table(d, "\t"), running_text)
    content = draw.choice(makers)(draw)
    if how < 0.3:
        half = len(content) // 2
        return gzip.compress(content[:half], mtime=0) + gzip.compress(content[half:], mtime=0)
    packed = gzip.compress(content, draw.choice((0, 1, 9)), mtime=0)
    if how < 0.5:
        return packed[: draw.randrange(len(packed) + 1)]
    return packed + draw.choice((b"", b"", b"\0" * 9, b"tail", packed[:20]))


@cache
def _bomb(piece: bytes) -> bytes:
    return gzip.compress(piece * (10**8 // len(piece)), 6, mtime=0)


def _encoded(draw: random.Random, text: str) -> bytes:
    mark = "\ufeff" if draw.random() < 0.05 else ""
    return (mark + text).encode("utf-8", "surrogatepass")
