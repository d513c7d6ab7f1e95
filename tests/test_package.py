"""The package as a whole: one version, a light import, tested versions.

These fail when a version is raised in one place alone, when `import ropewalk` starts to load more
than torch does, when a dependency is declared without a tested version, or when a public module
cannot be imported from, or has other names than its module in rotary/.
"""

import itertools
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import ropewalk

ROOT = Path(__file__).parents[1]


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
    assert loaded_beyond_torch("import ropewalk; ropewalk.rotate") == {"ropewalk"}


def test_torch_waits_for_the_first_use_of_a_public_name():
    """Else `ropewalk --help` takes a second, and Ctrl-C in that second ends in a traceback."""
    probe = "import sys, ropewalk; assert 'torch' not in sys.modules; ropewalk.rotate"
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_every_public_name_is_there_and_listed():
    assert set(ropewalk.__all__) <= set(dir(ropewalk))
    assert all(getattr(ropewalk, name) is not None for name in ropewalk.__all__)
    with pytest.raises(AttributeError, match="module 'ropewalk' has no attribute 'rotated'"):
        ropewalk.rotated  # noqa: B018


def test_the_import_probe_sees_what_else_is_loaded():
    assert "sacrebleu" in loaded_beyond_torch("import ropewalk, sacrebleu")


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


@pytest.mark.parametrize("name", ["axes", "interop", "positions", "scaling"])
def test_public_modules_are_those_of_rotary(name):
    public, own = import_module(f"ropewalk.{name}"), import_module(f"ropewalk.rotary.{name}")
    assert getattr(ropewalk, name) is public
    assert public.__all__ == own.__all__
    assert all(getattr(public, word) is getattr(own, word) for word in own.__all__)
