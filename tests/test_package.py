"""The package as a whole: one version, a light import, floors that import downwards only.

These fail when a version is raised in one place alone, when `import ropewalk` starts to load more
than torch does, when a module imports from its own floor or a higher one, or when a dependency is
declared without a tested version.
"""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ropewalk

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ropewalk"
MODULES = list(PACKAGE.rglob("*.py"))

# The house: a floor imports only from floors below it.
FLOORS = [
    {"rotary", "figures", "machine"},
    {"encodings"},
    {"model"},
    {"lab", "tools", "bench"},
    {"explorer"},
    {"cli"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def test_version_is_the_same_wherever_it_is_written():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [ropewalk.__version__]
    assert re.findall(r"^## \[(\d.+?)\]", changelog, re.MULTILINE)[0] == ropewalk.__version__


def loaded_beyond_torch(statement: str) -> set[str]:
    """Top-level modules that `statement` loads in a fresh interpreter that has torch already."""
    probe = (
        "import sys, torch; before = set(sys.modules)\n"
        f"{statement}\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*(new - set(sys.stdlib_module_names)))"
    )
    command = [sys.executable, "-c", probe]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_import_loads_torch_alone():
    assert loaded_beyond_torch("import ropewalk") == {"ropewalk"}


def test_the_import_probe_sees_what_else_is_loaded():
    assert "sacrebleu" in loaded_beyond_torch("import ropewalk, sacrebleu")


def house_imports(source: str, package: str) -> set[str]:
    """Which floors' packages `source`, a module in `package`, imports anywhere in it."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(outer if node.level else []), *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        inside = [name.split(".") for name in names]
        parts |= {part[1] for part in inside if part[0] == "ropewalk" and len(part) > 1}
    return parts & FLOOR.keys()


@pytest.mark.parametrize("module", sorted(str(p.relative_to(PACKAGE)) for p in MODULES))
def test_each_floor_imports_only_from_below(module: str):
    inside = Path(module)
    own = inside.parts[0].removesuffix(".py")
    if own.startswith("__"):
        return  # ropewalk/__init__.py gathers the public names; the test above keeps it light
    package = ".".join(["ropewalk", *inside.parts[:-1]])
    found = house_imports((PACKAGE / module).read_text(encoding="utf-8"), package) - {own}
    assert not {name for name in found if FLOOR[name] >= FLOOR[own]}


@pytest.mark.parametrize(
    "source",
    [
        "import ropewalk.lab.train",
        "from ropewalk import lab",
        "from ropewalk.lab import train",
        "def late():\n    from ..lab.train import run",
    ],
)
def test_the_floor_check_sees_every_form_of_import(source: str):
    assert house_imports(source, "ropewalk.rotary") == {"lab"}


def test_every_dependency_has_a_tested_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    declared = itertools.chain(project["dependencies"], *extras)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")

    def distribution(requirement: str) -> str:
        name = re.match(r"[\w.-]+", requirement)
        assert name, requirement
        return re.sub(r"[-_.]+", "-", name[0]).lower()

    tested = {distribution(line) for line in constraints.splitlines() if "==" in line}
    assert {distribution(each) for each in declared} - {"ropewalk"} <= tested
