"""The content of an HTML page as a browser sees it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

#: The digits of packed weights.
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Page(HTMLParser):
    """The content of a page as a browser sees it: elements, link targets, text, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.held: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        linking = {"src", "href", "srcset", "data", "poster", "action", "xlink:href"}
        self.links += [value for name, value in attrs if name in linking]
        if tag in self.held:
            self.held[tag].append("")

    def handle_data(self, data):
        inside = self.tags[-1] if self.tags else ""
        if inside in self.held and self.cdata_elem == inside:
            self.held[inside][-1] += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    @property
    def data(self):
        return json.loads(self.held["script"][0])
