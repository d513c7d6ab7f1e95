"""All files of the page: those that are written by hand, and those that are computed here."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ropewalk.figures.drawing import COLORS
from ropewalk.figures.interactive import scheme_css
from ropewalk.files import complete_folder, shown_path

#: What the page may load: its own files. Inline scripts and other hosts are refused, on any host.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)


def page_files(*, served: bool = True) -> dict[str, bytes]:
    """Return the content of each file by its path, with forward slashes.

    served: whether Python answers behind the page.
    """
    page = Path(__file__).parent / "page"
    by_hand = (path for path in page.rglob("*") if path.suffix in (".html", ".css", ".js"))
    found = {path.relative_to(page).as_posix(): path.read_bytes() for path in sorted(by_hand)}
    found["index.html"] = found["index.html"].replace(b"$policy", POLICY.encode())
    if not served:  # the page has some answers as data
        from ropewalk.explorer.encodings_room import encodings_data
        from ropewalk.explorer.stretch_room import stretch_data

        found["served.js"] = found["served.js"].replace(b"SERVED = true", b"SERVED = false")
        run = json.loads((Path(__file__).parent / "stored_run.json").read_bytes())
        for name, value in {**stretch_data(), **encodings_data(), **run}.items():
            text = json.dumps(value, separators=(",", ":"), allow_nan=False)
            found[f"data/{name}.json"] = text.encode()
    found["palette.css"] = palette_css().encode()
    return found


def palette_css() -> str:
    """Return the colors of both schemes as CSS, the same that figures have."""
    marks = [*(f"mark{i}" for i in range(len(COLORS))), "ink", "soft"]  # a rope may have 7 rules
    lines = "".join(f".color{i}{{stroke:var(--{mark})}}" for i, mark in enumerate(marks))
    fills = "".join(f".fill{i}{{fill:var(--{mark})}}" for i, mark in enumerate(marks))
    return f":root{{color-scheme:light dark}}\n{scheme_css()}{lines}\n{fills}\n"


def export(target: Path) -> int:
    """Write all files that need no Python into a new folder; return their bytes together.

    Raises ValueError if there is something at `target`, or no folder to make it in.
    """
    if os.path.lexists(target):
        raise ValueError(
            f"--export must name a folder that does not exist yet, got {shown_path(target)}"
        )
    if not target.parent.is_dir():
        raise ValueError(
            f"--export must be in a folder that exists, got {shown_path(target)}; make it first"
        )
    files = page_files(served=False)
    with complete_folder(target) as folder:
        for path, content in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return sum(map(len, files.values()))
