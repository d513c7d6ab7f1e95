"""The house: floors that import downward only, no circles, and a map of folders that is true.

These fail when a module imports from its own floor or a higher one, when modules or the parts of a
folder import one another in a circle of any length, and when the map in CONTRIBUTING.md or in
docs/house.md names what is not there or passes over a folder. Imports inside functions and under
TYPE_CHECKING count. Each test lists all offenders.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ropewalk"

# Each folder from the top; parts that share a floor do not import one another. `ropewalk` itself
# gathers the public names of rotary/, and stands on its floor.
FLOORS = {
    "ropewalk": [
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
        {"files", "machine", "bootstrap"},
        {"checks"},
    ],
    "ropewalk.lab": [
        {"export"},
        {"running"},
        {"report"},
        {"training"},
        {"tasks"},
        {"decoding"},
        {"models", "loss"},
        {"data"},
        {"results"},
        {"published", "cells"},
        {"scoring"},
        {"config_sources"},
        {"config"},
        {"presets"},
        {"tensors", "tokens", "stopping"},
    ],
}


def module_name(path: Path, source: Path = SOURCE) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FOLDERS = sorted({module.rpartition(".")[0] for module in MODULES if "." in module})


def part_of(module: str, folder: str) -> str:
    """Return the name of the file or folder inside `folder` that holds `module`."""
    parts = module.split(".")
    depth = folder.count(".") + 1
    return parts[depth] if len(parts) > depth else parts[-1]


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


@cache
def graph() -> dict[str, set[str]]:
    """Return what each module imports; not read when tests are only collected."""
    return {
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


def arrows_in(folder: str) -> list[tuple[str, str, str, str]]:
    """Return (part, other part, module, imported module) for the imports among a folder's parts."""
    inside = f"{folder}."
    return [
        (part_of(module, folder), part_of(other, folder), module, other)
        for module, imported in graph().items()
        for other in sorted(imported)
        if (module + ".").startswith(inside) and (other + ".").startswith(inside)
        if part_of(module, folder) != part_of(other, folder)
    ]


def test_no_modules_import_one_another_in_a_circle():
    assert circle_in(graph()) == []


def test_no_parts_of_a_folder_import_one_another_in_a_circle():
    """A folder's own __init__ gathers public names, so it is not a part of the folder."""
    circles = []
    for folder in FOLDERS:
        graph: dict[str, set[str]] = {}
        for part, other, module, imported in arrows_in(folder):
            if folder not in (module, imported):
                graph.setdefault(part, set()).add(other)
        if circle := circle_in(graph):
            circles.append((folder, circle))
    assert circles == []


def test_each_floor_imports_only_from_below():
    upward = []
    for folder, floors in FLOORS.items():
        floor = {part: height for height, parts in enumerate(reversed(floors)) for part in parts}
        parts = {part_of(module, folder) for module in MODULES if module.startswith(f"{folder}.")}
        assert parts <= floor.keys(), f"{folder}: parts without a floor"
        upward += [
            f"{module} imports {other}"
            for part, below, module, other in arrows_in(folder)
            # It imports names on first use, as a test in test_package.py sees; only type checkers
            # read its imports.
            if module != "ropewalk"
            if floor[below] >= floor[part]
        ]
    assert upward == []


@pytest.mark.parametrize(
    "source",
    [
        "import ropewalk.lab.models",
        "from ropewalk.lab import models",
        "from ropewalk.lab.models import load_model",
        "def late():\n    from ..lab.models import load_model",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ropewalk.lab import models",
    ],
)
def test_every_form_of_import_is_seen(source):
    known = {"ropewalk.lab", "ropewalk.lab.models"}
    assert imports_of("ropewalk.rotary.spec", source, False, known) == {"ropewalk.lab.models"}


def test_a_circle_of_any_length_is_seen():
    graph = {"a": {"b", "d"}, "b": {"c"}, "c": {"d", "a"}, "d": set()}
    assert circle_in(graph) == ["a", "b", "c", "a"]
    graph["c"] = {"d"}
    assert circle_in(graph) == []


def paths_in(page: str) -> set[str]:
    """Return the paths that a page's tree names; a line may name several, with commas."""
    block = re.search(r"```(?:text)?\n(src/ropewalk/\n.*?)```", page, re.DOTALL)
    assert block, "the page has no tree that begins with src/ropewalk/"
    folders: list[tuple[int, str]] = []
    paths = set()
    for line in block[1].splitlines():
        indent = len(line) - len(line.lstrip())
        folders = [(n, folder) for n, folder in folders if n < indent]
        names = re.match(r"[^\s,]+(, [^\s,]+)*", line.strip())[0].split(", ")
        paths |= {"".join(folder for _, folder in folders) + name for name in names}
        if names[0].endswith("/"):
            folders.append((indent, names[0]))
    return paths


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/house.md"])
def test_the_tree_is_true(page):
    """Nothing is named that is not there; each folder and file of the package's top is named."""
    paths = paths_in((ROOT / page).read_text(encoding="utf-8"))
    assert not [path for path in paths if not (ROOT / path).exists()]
    top = {
        f"src/ropewalk/{path.name}" + "/" * path.is_dir()
        for path in PACKAGE.iterdir()
        if not path.name.startswith("__") and (path.is_dir() or path.suffix == ".py")
    }
    assert not top - paths


def test_the_map_names_every_folder():
    paths = paths_in((ROOT / "docs" / "house.md").read_text(encoding="utf-8"))
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in MODULES.values()}
    assert not folders - paths


#: Messages of torch that have no other sign of what happened.
MESSAGES_OF_TORCH = {"lab/running/cell.py", "lab/training/process_group.py"}


def readings_of_messages(source: str) -> list[int]:
    """Return the lines on which code takes the message of an exception apart."""
    tree = ast.parse(source)
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    errors = {each.name for each in handlers if each.name}

    def is_message(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            return node.func.id == "str" and getattr(node.args[0], "id", None) in errors
        first = isinstance(node, ast.Subscript) and getattr(node.value, "attr", None) == "args"
        return first and getattr(node.value.value, "id", None) in errors

    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            read = isinstance(node.ops[0], ast.In | ast.NotIn) and is_message(node.comparators[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            by = node.func.attr
            parts = {"partition", "rpartition", "startswith", "endswith", "removeprefix", "find"}
            read = by in parts and is_message(node.func.value)
            patterns = {"match", "search", "fullmatch", "sub", "subn", "findall", "finditer"}
            read |= by in patterns and any(map(is_message, node.args))
        else:
            continue
        if read:
            lines.append(node.lineno)
    return lines


def test_no_code_takes_messages_of_exceptions_apart():
    """Give the error fields instead, as `checks.ArgumentNeededError` has."""
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in MODULES.values()
        if (lines := readings_of_messages(path.read_text(encoding="utf-8")))
    }
    assert found.keys() <= MESSAGES_OF_TORCH, found


def test_every_way_to_take_a_message_apart_is_seen():
    before = "try:\n    run()\nexcept ValueError as error:\n    "
    for code in (
        'str(error).partition("; ")', 'PATTERN.subn("", str(error))', 're.match("a", str(error))',
        'x = "gone" in str(error)', 'error.args[0].startswith("no")',
    ):  # fmt: skip
        assert readings_of_messages(before + code) == [4], code
    assert readings_of_messages(before + "print(str(error))") == []
