"""The package as a whole: one version, a light import, tested versions.

These fail when a version is raised in one place alone, when `import ropewalk` starts to load more
than torch does, when a dependency is declared without a tested version, or when a public module
cannot be imported from, or has other names than its module in rotary/.
"""

import itertools
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from shutil import copy
from types import SimpleNamespace

import pytest
import typer

import ropewalk
from ropewalk import checks
from ropewalk.checks import EXTRAS, install_command
from ropewalk.cli.messages import errors

ROOT = Path(__file__).parents[1]


def test_version_is_the_same_wherever_it_is_written():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [ropewalk.__version__]
    assert re.findall(r"^## \[(\d.+?)\]", changelog, re.MULTILINE)[0] == ropewalk.__version__


# Steps of one fresh interpreter, in turn.
STEPS = {
    "import": "import ropewalk",
    "torch": "import torch",
    "name": "ropewalk.rotate",
    "call": "rule = ropewalk.scaling.DynamicNTK(2.0, 32); "
    "rope = ropewalk.RotaryEmbedding(ropewalk.RotarySpec(8, scaling=rule)); "
    "rope.rotate(torch.ones(2, 1, 4, 8), length=torch.tensor([4, 99]))",
    "config": "config = {'model_type': 'llama', 'head_dim': 64, 'num_hidden_layers': 2}; "
    "ropewalk.ModelSpec.from_config(config).to_config()",
    "catalogue": "from ropewalk import tools; tools.catalogue('llama'); tools.catalogue_vectors()",
    "another library": "import sacrebleu",
}


def test_each_step_loads_no_more_than_it_needs():
    """Else `ropewalk --help` takes a second, and Ctrl-C in that second ends in a traceback."""
    probe = ["import json, sys", "seen, new = set(sys.modules), {}"]
    for name, step in STEPS.items():
        probe += [
            step,
            f"new[{name!r}] = sorted(set(sys.modules) - seen)",
            "seen |= {*sys.modules}",
        ]
    command = [sys.executable, "-c", "\n".join([*probe, "print(json.dumps(new))"])]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = json.loads(answer.stdout)
    packages = {
        name: {module.partition(".")[0] for module in loaded} - sys.stdlib_module_names
        for name, loaded in modules.items()
    }
    assert packages["import"] == packages["name"] == {"ropewalk"}
    assert packages["call"] | packages["config"] <= {"ropewalk", "torch"}
    assert not {"transformers", "gguf"} & packages["catalogue"]
    assert "sacrebleu" in packages["another library"]  # the probe sees what else is loaded
    used = {module for step in ("name", "call", "config") for module in modules[step]}
    assert "ropewalk.rotary.kernels.gpu" in used
    # These take a second, which nobody should pay who compiles and distributes nothing.
    slow = {"torch._dynamo", "torch.distributed.tensor", "ropewalk.rotary.kernels._rotate_triton"}
    assert not used & slow


def test_every_public_name_is_there_and_listed():
    assert dir(ropewalk) == sorted(ropewalk.__all__)
    assert all(getattr(ropewalk, name) is not None for name in ropewalk.__all__)
    with pytest.raises(AttributeError, match="module 'ropewalk' has no attribute 'rotated'"):
        ropewalk.rotated  # noqa: B018


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


def test_each_missing_module_is_named_with_an_extra_that_brings_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {re.match(r"\w+", each)[0].replace("pyyaml", "yaml") for each in packages}
        for extra, packages in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
    }
    assert set(EXTRAS) == set().union(*extras.values())
    assert all(module in extras[extra] for module, extra in EXTRAS.items())
    assert extras["explore"] <= extras["lab"]  # README installs that one


ORIGINS = {
    '{"url": "file:///a%20b", "dir_info": {}}': "'/a b[lab]'",
    '{"url": "file:///a", "dir_info": {"editable": true}}': "-e '/a[lab]'",
    '{"url": "file:///r.whl", "archive_info": {}}': "'ropewalk[lab] @ file:///r.whl'",
    '{"url": "https://x/r", "vcs_info": {"vcs": "git", "commit_id": "ab"}, "subdirectory": "d"}': (
        "'ropewalk[lab] @ git+https://x/r@ab#subdirectory=d'"
    ),
    None: f"'{ROOT}[lab]'",  # a clone on the path
}


@pytest.mark.parametrize(("origin", "command"), ORIGINS.items())
def test_the_way_out_installs_from_where_ropewalk_came(origin, command, monkeypatch):
    found = [SimpleNamespace(read_text={"direct_url.json": each}.get) for each in (None, origin)]
    monkeypatch.setattr(metadata, "distributions", lambda name: found)
    assert install_command("lab") == f"pip install {command}"
    if origin is None:
        monkeypatch.setattr(checks, "__file__", "/lib/python/site-packages/ropewalk/checks.py")
        assert install_command("lab") == "pip install 'ropewalk[lab]'"


def test_no_other_message_names_a_package_of_an_index():
    """Another's package may have the name there."""
    files = (ROOT / "src").rglob("*.py")
    assert [f.name for f in files if "ropewalk[" in f.read_text("utf-8")] == ["checks.py"]


def test_a_command_names_the_extra_that_lacks(capsys):
    errors_of = {
        ModuleNotFoundError(name="submitit.core"): r"needs submitit, .*: pip install .*\[slurm\]",
        ImportError("broken", name="torch"): "this command: broken\n$",
        ImportError("pip install transformers"): "ropewalk: pip install transformers\n$",
    }
    for error, said in errors_of.items():
        with pytest.raises(typer.Exit), errors():
            raise error
        assert re.search(said, capsys.readouterr().err)


class TestRelease:
    """Fails if a release has what was not tested, or if a part of one is left."""

    @pytest.fixture
    def tree(self, tmp_path):
        for name in (".ci/release", "CHANGELOG.md", "CITATION.cff", "src/ropewalk/__init__.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, tmp_path / name)
        version = ropewalk.__version__
        changelog = f"# Changelog\n\n## [{version}] - unreleased\n"
        (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
        for name in ("run", "wheels"):
            self.script(tmp_path / ".ci" / name, "true")
        self.script(tmp_path / ".venv" / "bin" / "python", "true")
        self.git(tmp_path, "init", "-q", "-b", "main")
        for name, value in (("user.name", "a"), ("user.email", "a@b.c")):
            self.git(tmp_path, "config", name, value)
        self.git(tmp_path, "add", "-A")
        self.git(tmp_path, "commit", "-qm", "start")
        return tmp_path

    @staticmethod
    def script(path, command):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        path.chmod(0o755)

    @staticmethod
    def git(tree, *words):
        return subprocess.run(
            ["git", *words], cwd=tree, check=True, capture_output=True, text=True
        ).stdout

    @staticmethod
    def release(tree, version=ropewalk.__version__):
        return subprocess.run([tree / ".ci" / "release", version], capture_output=True, text=True)

    def test_writes_version_and_date_and_tags(self, tree):
        assert self.release(tree).returncode == 0
        assert self.git(tree, "tag").split() == [f"v{ropewalk.__version__}"]
        assert "unreleased" not in (tree / "CHANGELOG.md").read_text("utf-8")
        assert "date-released: 20" in (tree / "CITATION.cff").read_text("utf-8")
        assert self.git(tree, "status", "--porcelain") == ""
        again = self.release(tree)
        assert (again.returncode, again.stderr.count("\n")) == (2, 1)
        assert "exists" in again.stderr

    @pytest.mark.parametrize(
        ("spoil", "version", "word"),
        [
            (lambda tree: (tree / "x").touch(), ropewalk.__version__, "clean"),
            (lambda tree: None, "1.0", "form"),
            (lambda tree: None, "9.9.9", "heading"),
            (lambda tree: TestRelease.git(tree, "checkout", "-qb", "x"), None, "branch"),
        ],
    )
    def test_refuses_in_one_line(self, tree, spoil, version, word):
        spoil(tree)
        said = self.release(tree, version or ropewalk.__version__)
        assert said.returncode == 2
        assert word in said.stderr
        assert said.stderr.count("\n") == 1
        assert self.git(tree, "tag") == ""

    def test_a_release_whose_tests_fail_leaves_nothing(self, tree):
        self.script(tree / ".ci" / "run", "exit 1")
        self.git(tree, "commit", "-qam", "break")
        before = self.git(tree, "rev-parse", "HEAD")
        assert self.release(tree).returncode != 0
        assert self.git(tree, "rev-parse", "HEAD") == before
        assert self.git(tree, "tag") + self.git(tree, "status", "--porcelain") == ""


def test_hooks_before_a_commit_use_the_versions_of_ci():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.findall(r"rev: v(\S+)", hooks) == re.findall(r"^ruff==(\S+)$", pins, re.MULTILINE)
