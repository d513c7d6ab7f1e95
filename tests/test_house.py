"""The house: floors that import downward only, no circles, files of a readable size, a true tree.

These fail when a module imports from its own floor or a higher one, when modules import one
another in a circle of any length, when a file grows past 300 lines, and when README's tree names
what is not there or passes over what is. Imports inside functions and under TYPE_CHECKING count.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ropewalk"
MAX_LINES = 300

# From the top; rooms that share a floor do not import one another. `ropewalk` itself gathers the
# public names of rotary/, and stands on its floor.
FLOORS = [
    {"cli"},
    {"explorer", "testing"},
    {"lab"},
    {"bench"},
    {"tools"},
    {"model"},
    {"encodings"},
    {"ropewalk"},
    {"scaling", "axes", "positions", "interop"},
    {"rotary", "figures"},
    {"files", "locks", "machine", "bootstrap"},
    {"checks"},
]
FLOOR = {room: height for height, rooms in enumerate(reversed(FLOORS)) for room in rooms}


def module_name(path: Path, source: Path = SOURCE) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
SCRIPT_FOLDERS = ("benchmarks", "examples", "studies")
SCRIPTS = sorted(path for folder in SCRIPT_FOLDERS for path in (ROOT / folder).rglob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports_of(module: str, source: str, is_package: bool, known: set[str]) -> set[str]:
    """Which of the known modules `source`, that of `module`, imports anywhere in it."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(outer if node.level else []), *filter(None, [node.module])])
            for alias in node.names:  # a module of that name, or a name in the package
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in known else base)
    return (found & known) - {module}


GRAPH = {
    module: imports_of(
        module, path.read_text(encoding="utf-8"), path.name == "__init__.py", set(MODULES)
    )
    for module, path in MODULES.items()
}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import one another in a circle, [] where there is none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if found := visit(other, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


def test_no_modules_import_one_another_in_a_circle():
    assert circle_in(GRAPH) == []


@pytest.mark.parametrize("module", MODULES)
def test_each_floor_imports_only_from_below(module):
    room = room_of(module)
    others = {other for other in GRAPH[module] if room_of(other) != room}
    if module == "ropewalk":  # it imports names on first use; type checkers read where from
        others -= {"ropewalk.tools.patch"}
    assert not {other for other in others if FLOOR[room_of(other)] >= FLOOR[room]}


def test_every_room_has_a_floor():
    assert {room_of(module) for module in MODULES} <= FLOOR.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import ropewalk.lab.train",
        "from ropewalk.lab import train",
        "from ropewalk.lab.train import run",
        "def late():\n    from ..lab.train import run",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ropewalk.lab import train",
    ],
)
def test_every_form_of_import_is_seen(source):
    known = {"ropewalk.lab", "ropewalk.lab.train"}
    assert imports_of("ropewalk.rotary.spec", source, False, known) == {"ropewalk.lab.train"}


def test_a_circle_of_any_length_is_seen():
    graph = {"a": {"b", "d"}, "b": {"c"}, "c": {"d", "a"}, "d": set()}
    assert circle_in(graph) == ["a", "b", "c", "a"]
    graph["c"] = {"d"}
    assert circle_in(graph) == []


@pytest.mark.parametrize("path", [*MODULES.values(), *SCRIPTS], ids=lambda path: path.stem)
def test_a_file_is_at_most_300_lines(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines; split it where it reads best"


def tree_of(page: str) -> set[str]:
    """Return the paths that a page's tree names; a line may name several files, with commas."""
    block = re.search(r"```(?:text)?\n(src/ropewalk/\n.*?)```", page, re.DOTALL)
    assert block, "the page has no tree that begins with src/ropewalk/"
    folders: list[tuple[int, str]] = []
    found = set()
    for line in block[1].splitlines():
        indent = len(line) - len(line.lstrip())
        folders = [(n, folder) for n, folder in folders if n < indent]
        names = re.match(r"[^\s,]+(, [^\s,]+)*", line.strip())[0].split(", ")
        found |= {"".join(folder for _, folder in folders) + name for name in names}
        if names[0].endswith("/"):
            folders.append((indent, names[0]))
    return found


def missing_from(tree: set[str]) -> list[str]:
    """Return the modules that a tree names neither themselves nor by an unopened folder."""
    opened = {path.rpartition("/")[0] + "/" for path in tree if not path.endswith("/")}
    opened |= {path.rstrip("/").rpartition("/")[0] + "/" for path in tree if path.count("/") > 1}
    closed = {path for path in tree if path.endswith("/")} - opened
    inside = [str(path.relative_to(ROOT)) for path in MODULES.values()]
    return [
        path
        for path in inside
        if path not in tree
        and not path.rpartition("/")[2].startswith("__")
        and not any(path.startswith(folder) for folder in closed)
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/house.md"])
def test_the_tree_is_true(page):
    """Nothing is named that is not there; each file is named, or a folder that it is in."""
    tree = tree_of((ROOT / page).read_text(encoding="utf-8"))
    assert not [path for path in tree if not (ROOT / path).exists()]
    assert missing_from(tree) == []


def test_a_file_that_the_tree_lacks_is_seen():
    tree = tree_of((ROOT / "docs" / "house.md").read_text(encoding="utf-8"))
    spec = "src/ropewalk/rotary/spec.py"
    assert missing_from(tree - {spec}) == [spec]
