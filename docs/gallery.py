"""Draw the pictures of docs/gallery.md: `python docs/gallery.py`.

It runs the page's code in order, from the folder of the repository. After each marker
`<!-- picture: name -->`, the next block must set `picture`: this script saves it, light and dark,
and writes it with its alternative text between the marker and `<!-- end -->`.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from ropewalk.figures import Picture
from ropewalk.figures.picture import picture_html

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
MARKED = re.compile(r"(<!-- picture: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
PART = re.compile(r"<!-- picture: ([\w-]+) -->|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pictures(text: str) -> dict[str, Picture]:
    """Return the pictures that the page's code draws, by name."""
    namespace: dict[str, Any] = {}
    found: dict[str, Picture] = {}
    waiting = ""
    with contextlib.chdir(ROOT):
        for name, code in PART.findall(text):
            if code:
                exec(compile(code, f"{PAGE.name}: {waiting}", "exec"), namespace)
                found[waiting] = namespace["picture"]
            waiting = name
    return found


def page(text: str, drawn: dict[str, Picture]) -> str:
    """Return the page with these pictures and their alternative texts."""

    def marked(match: re.Match[str]) -> str:
        source, alt = f"pictures/gallery/{match[2]}", drawn[match[2]].alt
        return f"{match[1]}{picture_html(source, 'svg', alt, narrow=True)}\n{match[3]}"

    return MARKED.sub(marked, text)


def files(drawn: dict[str, Picture]) -> dict[Path, bytes]:
    """Return the files of these pictures, light and dark."""
    return {
        PICTURES / name: content
        for stem, picture in drawn.items()
        for name, content in picture.both(stem, narrow=True).items()
    }


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    drawn = pictures(text)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path, content in files(drawn).items():
        path.write_bytes(content)
    PAGE.write_text(page(text, drawn), encoding="utf-8")
    print(PAGE)
