"""Documents of Debian packages: books of the Bible, and files or pages of manuals.

Each reader takes the bytes of a package and returns its documents by name and its copyright
notice. Names have only lower-case letters, digits, - and ., so that any file system accepts them.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Mapping

from real_text.deb import read_deb
from real_text.html_text import text_of
from real_text.kjv import read_bible

Documents = dict[str, str]

SHORTEST = 500  # least characters of a document; shorter pages are lists of links
BIBLE = "usr/lib/bible.data"
HANDBOOK = "usr/share/doc/debian-handbook/html/en-US/"
PYTHON = "usr/share/doc/python3.11/html/"
#: Folders of Python's documentation. Left out are indexes, notices, and the folders distutils and
#: install: they describe deprecated modules and repeat much of each other.
PYTHON_FOLDERS = (
    "c-api|distributing|extending|faq|howto|installing|library|reference|tutorial|using|whatsnew"
)
#: Files of the kernel's documentation; translations repeat it, and devicetree has schemas.
LINUX = re.compile(
    r"usr/share/doc/linux-doc-6\.1/Documentation/(?!translations/|devicetree/)(.+)\.rst(\.gz)?"
)
#: Pages of PostgreSQL's documentation; release notes and indexes are lists.
POSTGRESQL = re.compile(
    r"usr/share/doc/postgresql-doc-15/html/(?!release|bookindex|index|biblio)([\w.-]+)\.html"
)
MOST_FILE = 2**24  # limit in bytes for a file when unpacked
PAGE = re.compile(rf"{re.escape(PYTHON)}((?:{PYTHON_FOLDERS})/[\w.-]+|glossary)\.html")
LINK = re.compile(r'<link rel="(up|next)" href="([\w.-]+)"')
NAVIGATION = frozenset(("docnav", "indexterm", "toc", "#banner", "#title"))
DOCBOOK_NAVIGATION = frozenset(("navheader", "navfooter", "toc", "indexterm"))
SPHINX_NAVIGATION = frozenset(("headerlink", "contents", "toctree-wrapper"))


def bible(content: bytes) -> tuple[Documents, bytes]:
    """Return the books of the package bible-kjv-text and its copyright notice."""
    notice = _notice("bible-kjv-text")
    files = read_deb(content, {BIBLE, notice}.__contains__)
    books = enumerate(read_bible(_there(files, BIBLE)).items(), start=1)
    return {_name(f"{i:02d} {book}"): text for i, (book, text) in books}, _there(files, notice)


def handbook(content: bytes) -> tuple[Documents, bytes]:
    """Return the English chapters of the package debian-handbook and its copyright notice."""
    notice = _notice("debian-handbook")
    files = read_deb(content, lambda path: path == notice or path.startswith(HANDBOOK))
    pages = {path.removeprefix(HANDBOOK): page for path, page in files.items()}
    chapters: dict[str, list[str]] = {}
    seen = {"index.html"}
    page = "index.html"
    while page:
        html = _there(pages, page).decode("utf-8", "replace")
        links = dict(LINK.findall(html))
        if page != "index.html":
            above = links.get("up", "index.html")
            chapter = page if above == "index.html" else above
            chapters.setdefault(chapter, []).append(text_of(html, ("", "body"), NAVIGATION))
        page = links.get("next", "")
        if page in seen:
            raise ValueError(f"its pages link in a circle, at {page}")
        seen.add(page)
    documents = {
        _name(f"{number:02d} {chapter.removesuffix('.html')}"): "\n\n".join(parts) + "\n"
        for number, (chapter, parts) in enumerate(chapters.items(), start=1)
    }
    return _long(documents), _there(files, notice)


def python_docs(content: bytes) -> tuple[Documents, bytes]:
    """Return the pages of the package python3.11-doc (tutorial, library, ...) and its notice."""

    def read(page: bytes) -> str:
        return text_of(page.decode("utf-8", "replace"), ("role", "main"), SPHINX_NAVIGATION)

    return _by_path(content, "python3.11-doc", PAGE, read)


def postgresql(content: bytes) -> tuple[Documents, bytes]:
    """Return the pages of the package postgresql-doc-15 and its notice."""

    def read(page: bytes) -> str:
        return text_of(page.decode("utf-8", "replace"), ("", "body"), DOCBOOK_NAVIGATION)

    return _by_path(content, "postgresql-doc-15", POSTGRESQL, read)


def linux(content: bytes) -> tuple[Documents, bytes]:
    """Return the files of the package linux-doc-6.1, in reStructuredText, and its notice."""
    return _by_path(content, "linux-doc-6.1", LINUX, _unpacked)


def _unpacked(packed: bytes) -> str:
    if packed.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            packed = file.read(MOST_FILE)
    return packed.decode("utf-8", "replace").strip()


def _by_path(
    content: bytes, package: str, pattern: re.Pattern[str], read: Callable[[bytes], str]
) -> tuple[Documents, bytes]:
    """Return the documents of a package whose paths match, named by the first group."""
    notice = _notice(package)
    files = read_deb(content, lambda path: path == notice or pattern.fullmatch(path) is not None)
    documents: Documents = {}
    for path, file in sorted(files.items()):
        if found := pattern.fullmatch(path):
            text = read(file) + "\n"
            if documents.setdefault(_name(found[1]), text) is not text:
                raise ValueError(f"two of its pages would have one file name: {_name(found[1])}")
    return _long(documents), _there(files, notice)


def _notice(package: str) -> str:
    return f"usr/share/doc/{package}/copyright"


def _there(files: Mapping[str, bytes], path: str) -> bytes:
    if path not in files:
        raise ValueError(f"it has no {path}; use the required version of the package")
    return files[path]


def _name(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")


def _long(documents: Documents) -> Documents:
    return {name: text for name, text in documents.items() if len(text) >= SHORTEST}
