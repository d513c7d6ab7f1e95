"""Catalog of the real texts: the files they are read from, their licenses, their digests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from real_text import archives, packages
from real_text.obtain import Pinned, debian
from real_text.packages import Documents
from real_text.splits import HELD_OUT_SHARE, split_documents, without_repeats

Reader = Callable[[bytes], tuple[dict[str, Documents], bytes]]


@dataclass(frozen=True)
class Part:
    """One file, and the reader that returns its documents by split and its copyright notice."""

    name: str
    file: Pinned
    read: Reader
    about: str
    license: str


@dataclass(frozen=True)
class RealText:
    """A text of one or several parts.

    digest: the SHA-256 of its SHA256SUMS, or "" if none is recorded.
    """

    name: str
    parts: tuple[Part, ...]
    digest: str


def _chosen(
    read: Callable[[bytes], tuple[Documents, bytes]], test: float = HELD_OUT_SHARE
) -> Reader:
    """Wrap a reader of documents so that it returns them by split; test: its share."""

    def by_split(content: bytes) -> tuple[dict[str, Documents], bytes]:
        documents, notice = read(content)
        return without_repeats(split_documents(documents, test))[0], notice

    return by_split


KJV = Part(
    "kjv",
    debian(
        "bible-kjv-text",
        "4.38",
        "b/bible-kjv",
        2_445_000,
        "1666fa8517505735afa6b63c149d7879c42fb1a2",
        "d61b6aad4c51ba9e2800b825325fa6a09e99a0d02a9bb6dc4724fcc4995a1b7a",
    ),
    _chosen(packages.bible),
    "the King James Bible of 1611; a document is a book, a line a verse",
    "in the public domain; in the United Kingdom the Crown holds the right to print it",
)
HANDBOOK = Part(
    "debian-handbook",
    debian(
        "debian-handbook",
        "11.20220922",
        "d/debian-handbook",
        34_758_056,
        "5ee1e8936b0f0220b2e6074fc8bb8efc6515e318",
        "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa",
    ),
    _chosen(packages.handbook),
    "The Debian Administrator's Handbook, by Raphaël Hertzog and Roland Mas; a document is a "
    "chapter",
    "GPL-2.0-or-later or CC-BY-SA-3.0",
)
PYTHON_DOCS = Part(
    "python-docs",
    debian(
        "python3.11-doc",
        "3.11.2-6+deb12u8",
        "p/python3.11",
        12_642_400,
        "d4a9ab01ca393dc30872e1ea65f14be24cfcfe73",
        "50eb63e7f636c4281e9ce1b8f10386f1def42159eddce34fc1f41c46261df71b",
    ),
    _chosen(packages.python_docs),
    "the documentation of Python 3.11; a document is a page",
    "PSF-2.0, code in it 0BSD too",
)
#: A share for test that gives 200 documents of 2,048 tokens and more.
MANUALS_TEST = 0.2
MANUALS = (
    Part(
        "linux",
        debian(
            "linux-doc-6.1",
            "6.1.176-1",
            "l/linux",
            37_222_656,
            "97a5e89b363de0a3439a2b0953a366683e859d77",
            "0d843674607703b9ef8c1db5e715c38ed52ff23574feabfe0d961d552126859f",
        ),
        _chosen(packages.linux, MANUALS_TEST),
        "the documentation of Linux 6.1 in English, its sources; a document is a file",
        "GPL-2.0",
    ),
    Part(
        "postgresql",
        debian(
            "postgresql-doc-15",
            "15.18-0+deb12u1",
            "p/postgresql-15",
            2_096_084,
            "c7509465c969020f6ce89ae57ff0b70bb0d05b45",
            "3c598277a463c44d672daa2c335deb8d8252e1852fb025fd4578ea2d9a1b90f0",
        ),
        _chosen(packages.postgresql, MANUALS_TEST),
        "the documentation of PostgreSQL 15; a document is a page",
        "PostgreSQL license",
    ),
    replace(PYTHON_DOCS, read=_chosen(packages.python_docs, MANUALS_TEST)),
)
WIKITEXT_2 = Part(
    "wikitext-2",
    Pinned(
        "wikitext-2-raw-v1.zip",
        4_721_645,
        "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
        (
            "https://huggingface.co/datasets/ggml-org/ci/resolve/"
            "927b3642933080f1b0e811e2f916e14c292992f9/wikitext-2-raw-v1.zip",
        ),
    ),
    archives.wikitext,
    "WikiText-2, raw, in its published splits; a document is an article",
    "CC-BY-SA-3.0 and GFDL",
)
ENWIK8 = Part(
    "enwik8",
    Pinned(
        "enwik8.zip",
        36_445_475,
        "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        ("https://mattmahoney.net/dc/enwik8.zip", "http://mattmahoney.net/dc/enwik8.zip"),
    ),
    archives.enwik8,
    "the first 10^8 bytes of the English Wikipedia of March 2006, in 90, 5 and 5 MB of whole pages",
    "CC-BY-SA-3.0 and GFDL",
)

#: The texts by name. If the digest is "", the text is identified by the file it is read from.
REAL_TEXTS = {
    text.name: text
    for text in (
        RealText(
            "debian-texts",
            (KJV, HANDBOOK, PYTHON_DOCS),
            "7d906b28a24ed1c4e57fda204c8d155d49c494640323eba38324cb9708ff2cc1",
        ),
        RealText(
            "manuals",
            MANUALS,
            "bf94086c79a2f5251fe5c6097162e7bb17a3c0df24dee4f47310090b0a2da616",
        ),
        RealText("kjv", (KJV,), "0f9cff13b03172434d24200245e108c3131b03556b65f87326bd27b414ffa7d0"),
        RealText(
            "debian-handbook",
            (HANDBOOK,),
            "e63d4e424244849c5a62ef260f752902a6a826252f5f2c5ee0ec07c352cb3008",
        ),
        RealText(
            "python-docs",
            (PYTHON_DOCS,),
            "05d6b1918011922ecadbe31d1e508821e6451e6217f8c524c707ce7612f2d386",
        ),
        RealText("wikitext-2", (WIKITEXT_2,), ""),
        RealText("enwik8", (ENWIK8,), ""),
    )
}
