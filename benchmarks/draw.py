"""Draw the pictures of benchmarks and of README.md from committed numbers.

    python benchmarks/draw.py

Reads results/*.json and writes each picture, light and dark, next to its numbers, README's into
docs/pictures/. It also rewrites the pages that show them, between `<!-- picture: name -->` and
`<!-- end -->`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import cost
import exactness
import front_picture
from common import FOLDER
from exactness_report import drawn as drawn_errors

from ropewalk.bench.bench_report import picture_of
from ropewalk.bench.rotation_bench import TimedTable
from ropewalk.figures import Picture
from ropewalk.figures.picture import picture_html
from ropewalk.files import read_json, write_bytes

ROOT = FOLDER.parent
RESULTS = FOLDER / "results"
PAGES = (ROOT / "README.md", FOLDER / "README.md", ROOT / "docs" / "precision.md")
MARKED = re.compile(r"(<!-- picture: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


class Drawn(NamedTuple):
    """A picture, the folder of its files and their form."""

    picture: Picture
    folder: Path
    form: str


def pictures() -> dict[str, Drawn]:
    """Return all pictures, by name."""
    numbers = {
        name: read_json(RESULTS / f"{name}.json")
        for name in ("exactness", "libraries", "rotation", "cost")
    }
    front = front_picture.drawn(numbers["exactness"], numbers["libraries"])
    errors = drawn_errors(numbers["exactness"]["sweep"], exactness.TABLE_CLAIM)
    timed = [TimedTable.read(facts) for facts in numbers["rotation"]["tables"]]
    return {
        "error-and-speed": Drawn(front, ROOT / "docs" / "pictures", "svg"),
        "rotation": Drawn(picture_of(timed), RESULTS, "png"),
        "exactness": Drawn(errors, RESULTS, "png"),
        "cost": Drawn(cost.drawn(numbers["cost"]), RESULTS, "png"),
    }


def page(path: Path, drawn: dict[str, Drawn]) -> str:
    """Return the text of a page with these pictures and their alternative texts."""

    def marked(match: re.Match[str]) -> str:
        found = drawn[match[2]]
        stem = Path(os.path.relpath(found.folder / match[2], path.parent)).as_posix()
        alt = found.picture.alt
        if path.parent != ROOT:  # other pages have the numbers in a table beside the picture
            alt = alt.partition(". ")[0]
        html = picture_html(stem, found.form, alt, narrow=found.form == "svg")
        return f"{match[1]}{html}\n{match[3]}"

    return MARKED.sub(marked, path.read_text("utf-8"))


if __name__ == "__main__":
    drawn = pictures()
    for name, (picture, folder, form) in drawn.items():
        for file, content in picture.both(name, form, narrow=form == "svg").items():
            write_bytes(folder / file, content)
    for path in PAGES:
        write_bytes(path, page(path, drawn).encode())
