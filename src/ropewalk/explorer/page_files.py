"""All files of the page: those that are written by hand, and those that are computed here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any

from ropewalk.figures.drawing import COLORS
from ropewalk.figures.interactive import scheme_css
from ropewalk.files import complete_folder, shown_path

if TYPE_CHECKING:
    from ropewalk.explorer.model_room import ModelRoom

#: What the page may load: its own files. Inline scripts and other hosts are refused, on any host.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)


IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function |const )|^export \{[^}]*\};$", re.MULTILINE)
#: Calls the module main, and what it imports. Browsers load no modules from a folder of files.
SCRIPT = """"use strict";
(() => {
const made = {};
const need = (name) => (made[name] ??= modules[name]());
const modules = {%s};
need("main.js");
})();
"""


def page_files(*, served: bool = True) -> dict[str, bytes]:
    """Return the content of each file by its path, with forward slashes.

    served: whether Python answers behind the page. Otherwise the page opens from any web host or
    folder, and asks for the files of `data_files`.
    """
    page = Path(__file__).parent / "page"
    by_hand = (path for path in page.rglob("*") if path.suffix in (".html", ".css", ".js"))
    found = {path.relative_to(page).as_posix(): path.read_bytes() for path in sorted(by_hand)}
    found["index.html"] = found["index.html"].replace(b"$policy", POLICY.encode())
    found["palette.css"] = palette_css().encode()
    if served:
        return found
    module, script = b'<script type="module" src="main.js">', b'<script src="page.js" defer>'
    found["index.html"] = found["index.html"].replace(module, script)
    modules = {path: found.pop(path).decode() for path in list(found) if path.endswith(".js")}
    modules["served.js"] = modules["served.js"].replace("SERVED = true", "SERVED = false")
    found["page.js"] = one_script(modules).encode()
    return found


def data_files(model: ModelRoom | None) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file with answers that Python otherwise computes."""
    for name, value in _data(model):
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        yield f"data/{name}.js", f"window.ropewalkData={text};\n".encode()


def _data(model: ModelRoom | None) -> Iterator[tuple[str, dict[str, Any]]]:
    from ropewalk.explorer.encodings_room import encodings_data
    from ropewalk.explorer.stretch_room import stretch_data

    run = json.loads((Path(__file__).parent / "stored_run.json").read_bytes())
    yield from {**stretch_data(), **encodings_data(), **run}.items()
    if model is None:
        yield "model", {"model": None}
        return
    told = model.overview()
    yield "model", told
    for layer in told["layers"]:
        for head in range(layer["heads"]):
            yield f"head-{layer['layer']}-{head}", model.head(layer["layer"], head)


def one_script(modules: Mapping[str, str]) -> str:
    """Return modules as one script: each is a function, called once, that returns its names."""

    def path_of(name: str, path: str) -> str:
        return normpath(join(dirname(name), path))

    asked: dict[str, set[str]] = {name: set() for name in modules}
    for name, text in modules.items():
        for names, path in IMPORT.findall(text):
            asked[path_of(name, path)].update(re.findall(r"\w+", names))

    def function(name: str, text: str) -> str:
        text = IMPORT.sub(lambda m: f'const {{{m[1]}}} = need("{path_of(name, m[2])}");', text)
        given = ", ".join(sorted(asked[name]))
        return f'"{name}": () => {{\n{EXPORT.sub("", text)}return {{ {given} }};\n}},\n'

    return SCRIPT % "".join(function(*each) for each in modules.items())


def palette_css() -> str:
    """Return the colors of both schemes as CSS, the same that figures have."""
    marks = [*(f"mark{i}" for i in range(len(COLORS))), "ink", "soft"]  # a rope may have 7 rules
    lines = "".join(f".color{i}{{stroke:var(--{mark})}}" for i, mark in enumerate(marks))
    fills = "".join(f".fill{i}{{fill:var(--{mark})}}" for i, mark in enumerate(marks))
    return f":root{{color-scheme:light dark}}\n{scheme_css()}{lines}\n{fills}\n"


def check_target(target: Path) -> None:
    """Raise ValueError if there is something at `target`, or no folder to make it in."""
    if os.path.lexists(target):
        raise ValueError(
            f"--export must name a folder that does not exist yet, got {shown_path(target)}"
        )
    if not target.parent.is_dir():
        raise ValueError(
            f"--export must be in a folder that exists, got {shown_path(target)}; make it first"
        )


def export(target: Path, model: ModelRoom | None = None) -> int:
    """Write all files that need no Python into a new folder; return their bytes together.

    model: what the room Your model shows. Raises ValueError as `check_target` does.
    """
    check_target(target)
    size = 0
    with complete_folder(target) as folder:
        for path, content in chain(page_files(served=False).items(), data_files(model)):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            size += len(content)
    return size
