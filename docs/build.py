"""Build the pages of this repository as a site: `python docs/build.py`, with the extra `docs`.

README.md, every page of docs/, and whatever these link to are copied to build/pages in the same
folders, so that a link such as `../results/README.md` works on the site as it does in the
repository. Zensical then makes build/site of them and stops at the first warning. The site needs
no network, neither to be built nor to be read. It contains the explorer, in build/site/explorer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from ropewalk.explorer.page_files import export

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"  # docs_dir of mkdocs.yml
SITE = ROOT / "build" / "site"  # its site_dir
LOADED = ("site.css", "site.js", "iframe-worker.js")  # by every page, as mkdocs.yml says
# Only the site has the explorer, so the page in the repository has no link to it.
MARK = "<!-- the site has a link to the exported page here -->"
LINK_TO_EXPLORER = '<a href="../explorer/index.html">Open it here</a>, without Python.'
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)|\bsrc(?:set)?=\"([^\"\s]+)\"")  # Markdown's and HTML's
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def linked_files(page: Path) -> list[Path]:
    """Return the files of this repository that a page links to or shows.

    Raises ValueError if a link names no file.
    """
    found = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    targets = [link or source for link, source in found]
    files = [(page.parent / target).resolve() for target in targets if ":" not in target]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise ValueError(f"{page.relative_to(ROOT)}: links must name files, got {missing}")
    return files


def pages_and_files() -> list[Path]:
    """Return README.md, all pages of docs/ and the files that these and their targets link to."""
    found: dict[Path, None] = {}
    waiting = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file] = None
            waiting += linked_files(file) if file.suffix == ".md" else []
    return list(found)


class Loaded(HTMLParser):
    """The addresses on the network that a page loads by itself: scripts, styles, fonts, images."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" or (tag == "link" and values.get("rel") == "canonical"):
            return
        addresses = [values.get("src") or "", (tag == "link" and values.get("href")) or ""]
        self.addresses += [text for text in addresses if re.match(r"(https?:)?//", text)]


def loaded_from_network(page: Path) -> list[str]:
    """Return the addresses on the network that a built page would load."""
    parser = Loaded()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.addresses


def main() -> None:
    """Copy the pages, build the site, and check that no page loads anything from the network."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    for file in [*pages_and_files(), *(ROOT / "docs" / name for name in LOADED)]:
        copy = PAGES / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    page = PAGES / "docs" / "explorer.md"
    text = page.read_text(encoding="utf-8")
    if MARK not in text:
        sys.exit(f"docs/explorer.md must have the line {MARK}")
    page.write_text(text.replace(MARK, LINK_TO_EXPLORER), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    quiet = {
        **os.environ,
        "PYTHONWARNINGS": "ignore:Failed to initialize NumPy",
    }  # torch without it
    ran = subprocess.run(
        command, cwd=ROOT, env=quiet, stderr=subprocess.PIPE, text=True, check=False
    )
    print(ran.stderr, end="", file=sys.stderr)
    # griffe's warnings about docstrings are not Zensical's, and do not stop it.
    if ran.returncode or ran.stderr.strip() not in ("", "No issues found"):
        sys.exit("the site must build without a warning; see above")
    export(SITE / "explorer")
    built = sorted(SITE.rglob("*.html"))
    loads = {page: found for page in built if (found := loaded_from_network(page))}
    for page, addresses in loads.items():
        print(f"{page}: loads {', '.join(addresses)} from the network", file=sys.stderr)
    if loads or not built:
        sys.exit(1)
    print(f"{len(built)} pages in {SITE}")


if __name__ == "__main__":
    main()
