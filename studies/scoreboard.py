"""How libraries fare on the conformance vectors: `python studies/scoreboard.py measure`, then `page`.

`measure [NAME …]` makes an environment for each library, runs its adapter of conformance/adapters
there, and writes every result to results/conformance/found. `page` writes the README and the
picture from these files and from explanations.json, which has the reason of each failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import venv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from common import markdown_table, shown, write_pictures

from ropewalk.figures.drawing import Scheme
from ropewalk.figures.picture import Picture
from ropewalk.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
SUITE, HOME = ROOT / "conformance", ROOT / "results" / "conformance"
AREAS = ("pairings", "parts", "scaling", "axes", "positions", "half-precision", "cache", "far",
         "models")  # fmt: skip
TORCH = ("torch==2.13.0", "numpy==2.4.6")
Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Library:
    """What is installed to ask a library. packages: of pip; alone: without what they require."""

    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()


LIBRARIES: dict[str, Library] = {
    "ropewalk": Library((*TORCH, str(ROOT))),
}


def measure(name: str, environments: Path) -> None:
    """Ask a library all vectors in an environment of its own, and write what it said."""
    library, home = LIBRARIES[name], environments / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *library.packages], check=True)
        if library.alone:
            subprocess.run([*install, "--no-deps", *library.alone], check=True)
    with TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        adapter = SUITE / "adapters" / f"{name.replace('-', '_')}_adapter.py"
        ask = [python, SUITE / "run.py", adapter, "--json", found]
        if subprocess.run(ask, check=False, stdout=subprocess.DEVNULL).returncode > 1:
            raise ValueError(f"{adapter} must run in the environment of {name}")
        records = json.loads(found.read_text("utf-8"))["records"]
    lines = ",\n  ".join(json.dumps(record) for record in records)
    frozen = subprocess.run(
        [python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True, text=True
    )
    asked = {package.partition("==")[0].lower() for package in (*library.packages, *library.alone)}
    versions = {
        each["name"]: each["version"]
        for each in json.loads(frozen.stdout)
        if each["name"].lower() in {*asked, name}
    }
    head = json.dumps({"python": platform.python_version(), "versions": versions})[1:-1]
    text = f'{{\n {head},\n "records": [\n  {lines}\n ]\n}}\n'
    write_bytes(HOME / "found" / f"{name}.json", text.encode())
    print(name, *sorted(Counter(record["result"] for record in records).items()))


def counts(records: Records, area: str) -> Counter[str]:
    """Return how many results of an area are valid, acceptable and invalid."""
    return Counter(record["result"] for record in records if record["area"] == area)


def cell(found: Counter[str]) -> str:
    """Return a cell of the table: right results of those asked, and how many by float32 angles."""
    if not found:
        return "–"
    right = found["valid"] + found["acceptable"]
    text = f"{right}/{found.total()}" + (f" ({found['acceptable']})" if found["acceptable"] else "")
    return f"**{text}**" if found["invalid"] else text


FILLS = {  # a cell's fill and ink, apart in lightness too, so that they print in gray
    "all right": ("#0b4f7d", "#ffffff"),
    "right, some by float32 angles": ("#a9d3ee", "#111111"),
    "some wrong": ("#f0a030", "#111111"),
}


def state(found: Counter[str]) -> str | None:
    """Return which fill a cell has; None if nothing was asked."""
    right, by_float32, wrong = FILLS
    if not found:
        return None
    return wrong if found["invalid"] else by_float32 if found["acceptable"] else right


def picture(found: dict[str, Records]) -> Picture:
    """Draw libraries by areas, each cell with its right results of those asked."""

    def draw(scheme: Scheme) -> Figure:
        from matplotlib.patches import Patch, Rectangle

        figure = scheme.blank(9.2, 0.9 + 0.34 * len(found))
        axes = figure.add_axes((0.2, 0.17, 0.79, 0.68), xlim=(0, len(AREAS)), ylim=(len(found), 0))
        axes.set_facecolor(scheme.page)
        for row, records in enumerate(found.values()):
            for column, area in enumerate(AREAS):
                of_area = counts(records, area)
                kind = state(of_area)
                fill, ink = FILLS[kind] if kind else (scheme.page, scheme.soft)
                axes.add_patch(Rectangle((column + 0.02, row + 0.05), 0.96, 0.9, color=fill, lw=0))
                text = cell(of_area).strip("*").partition(" ")[0]
                axes.text(column + 0.5, row + 0.52, text, color=ink, size=8, ha="center", va="center")
        axes.set_xticks([i + 0.5 for i in range(len(AREAS))], AREAS, size=8, color=scheme.ink)
        axes.set_yticks([i + 0.5 for i in range(len(found))], list(found), size=8, color=scheme.ink)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        keys = [Patch(color=fill, label=name) for name, (fill, _) in FILLS.items()]
        figure.legend(handles=keys, loc="lower center", ncols=3, frameon=False, fontsize=8,
                      labelcolor=scheme.ink)  # fmt: skip
        return figure

    told = []
    for name, records in found.items():
        all_of = Counter(record["result"] for record in records)
        told.append(f"{name} {all_of.total() - all_of['invalid']} of {all_of.total()}")
    alt = "Right results of those asked, by library and area. " + ", ".join(told) + "."
    return Picture(draw, alt, {"right": told})


def explained(name: str, records: Records, reasons: Records) -> list[str]:
    """Return the failures of a library, a line for each reason. Raises ValueError without one."""
    lines, left = [], [record for record in records if record["result"] == "invalid"]
    for reason in reasons:
        if reason["library"] != name:
            continue
        of_it = [r for r in left if f"{r['area']}/{r['name']}" in reason["vectors"]]
        left = [record for record in left if record not in of_it]
        if of_it:
            traps = sorted({record["trap"] for record in of_it if record["trap"]})
            named = f" The suite names `{'`, `'.join(traps)}`." if traps else ""
            thread = f" Public thread: <{reason['thread']}>." if reason["thread"] else ""
            lines.append(
                f"- **{reason['kind']}**, {len(of_it)} results of {', '.join(reason['vectors'])}: "
                f"{reason['what']} ({reason['where']}).{named}{thread}"
            )
    if left:
        raise ValueError(f"each failure must have a reason in explanations.json, got {left[0]}")
    return lines


def page() -> None:
    """Write README.md and the picture from what was measured."""
    measured = {name: json.loads((HOME / "found" / f"{name}.json").read_text("utf-8"))
                for name in LIBRARIES}  # fmt: skip
    reasons = json.loads((HOME / "explanations.json").read_text("utf-8"))
    found = {name: each["records"] for name, each in measured.items()}
    rows = []
    for name, each in measured.items():
        version = next(v for n, v in each["versions"].items() if n.lower() == name)
        rows.append([f"{name} {version}", *(cell(counts(found[name], area)) for area in AREAS)])
    failures = []
    for name, records in found.items():
        if lines := explained(name, records, reasons):
            failures += [f"### {name}", "", *lines, ""]
    drawn = picture(found)
    write_pictures(HOME, {"scoreboard": drawn})
    text = (HOME / "introduction.md").read_text("utf-8")
    text = text.replace("PICTURE", shown("scoreboard", drawn))
    text = text.replace("TABLE", markdown_table(["library", *AREAS], rows).rstrip())
    text = text.replace("FAILURES", "\n".join(failures).rstrip())
    write_bytes(HOME / "README.md", text.encode())
    print(HOME / "README.md")


def main() -> None:
    """Measure libraries, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["measure", "page"])
    parser.add_argument("libraries", nargs="*", choices=[*LIBRARIES, []], help="all without one")
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "ropewalk")
    options = parser.parse_args()
    if options.what == "page":
        page()
    for name in (options.libraries or LIBRARIES) if options.what == "measure" else ():
        measure(name, options.environments)


if __name__ == "__main__":
    sys.exit(main())
