"""The text of an HTML page: its paragraphs, headings and listings, without navigation."""

from __future__ import annotations

import re
from html.parser import HTMLParser


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Elements without an end tag.
VOID = _words("area base br col embed hr img input link meta source track wbr")
#: Elements that begin a paragraph of their own.
BLOCKS = _words(
    "article blockquote body br caption dd details div dl dt figcaption figure footer h1 h2 h3 h4 "
    "h5 h6 header hr li main ol p pre section summary table tbody tfoot thead tr ul"
)
CELLS = frozenset(("td", "th"))  # cells of a table row: separate words in one paragraph
SKIPPED = _words("head nav script style svg template title")
SPACE = re.compile(r"[ \t\r\n\f\xa0]+")  # not \s, which a later Unicode may widen

Attributes = list[tuple[str, str | None]]


class _Reader(HTMLParser):
    """Collect the paragraphs inside the main element."""

    def __init__(self, main: tuple[str, str], dropped: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.main, self.dropped = main, dropped
        self.open: list[tuple[str, str]] = []  # (tag, role); roles: keys of `inside`
        self.inside = {"": 0, "main": 0, "drop": 0, "pre": 0}  # number of open elements by role
        self.paragraphs: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self._part(tag)
        if tag in VOID:
            return
        given = {name: value or "" for name, value in attrs}
        classes = {"#" + given.get("id", ""), *given.get("class", "").split()}
        name, value = self.main
        role = "main" if tag == value or given.get(name) == value else ""
        if tag in SKIPPED or classes & self.dropped:
            role = "drop"
        elif tag == "pre":
            role = "pre"
        self.open.append((tag, role))
        self.inside[role] += 1

    def handle_endtag(self, tag: str) -> None:
        self._part(tag)
        if any(tag == each for each, _ in reversed(self.open)):
            closed = ""
            while closed != tag:  # an element left open ends with its parent
                closed, role = self.open.pop()
                self.inside[role] -= 1

    def handle_data(self, data: str) -> None:
        if self.inside["main"] and not self.inside["drop"]:
            self.words.append(data if self.inside["pre"] else SPACE.sub(" ", data))

    def _part(self, tag: str) -> None:
        if tag in CELLS:
            self.words.append(" ")
        if tag in BLOCKS:
            self.end_paragraph()

    def end_paragraph(self) -> None:
        """Store the text read since the last paragraph; a listing keeps its lines."""
        text = "".join(self.words)
        if self.inside["pre"]:
            text = "\n".join(line.rstrip(" \t\r") for line in text.strip("\r\n").split("\n"))
        else:
            text = SPACE.sub(" ", text).strip(" ")
        if text.strip():
            self.paragraphs.append(text)
        self.words = []


def text_of(page: str, main: tuple[str, str], dropped: frozenset[str]) -> str:
    """Return the paragraphs of a page, with an empty line between them.

    main: the element that contains the text, as (attribute, value) or ("", tag). dropped: the
    classes of elements to leave out, and their ids as "#id".
    """
    reader = _Reader(main, dropped)
    reader.feed(page)
    reader.close()
    reader.end_paragraph()
    return "\n\n".join(reader.paragraphs)
