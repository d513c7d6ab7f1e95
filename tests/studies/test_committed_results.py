"""The folders in results/: their READMEs, and the commands in them.

These fail if a README does not match its numbers, if a recorded command no longer works, or if it
leads to another config than that of the numbers.
"""

import re
import shlex
import subprocess
from functools import cache

import pytest
from publish import FREE, parts_of
from published_readme import TEXTS, pictures_in, readme
from scripts import ROOT, load_scripts
from typer.testing import CliRunner

from ropewalk.cli.app import app
from ropewalk.encodings import REGISTRY, outside
from ropewalk.files import read_json
from ropewalk.lab.results import read_results

#: Scripts that write the README of a folder in results/, if they have another name than it.
SCRIPTS = {
    "generated": "extrapolation",
    "rotary-parts": "rotary_parts_report",
    "rules": "reference_rules",
}

RESULTS = ROOT / "results"
MOST_BYTES = 1_000_000
CLAIMS = RESULTS / "claims"  # its page is claims.md, which has its own test
FOLDERS = sorted(path.parent for path in RESULTS.rglob("results.json") if path.parent != CLAIMS)
COMPARISONS = [path for path in FOLDERS if "ropewalk" in read_json(path / "results.json")]
OF_STUDIES = [path for path in FOLDERS if path not in COMPARISONS]


def name_of(folder):
    return str(folder.relative_to(RESULTS))


committed = cache(read_results)  # for both tests of a folder


def commands(folder):
    """Return the lines of the README's first block of commands."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    return text.partition("```sh\n")[2].partition("\n```")[0].splitlines()


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_readme_is_what_is_written_of_the_numbers(folder):
    if folder in COMPARISONS:
        text = readme(committed(folder), pictures_in(folder))
    else:
        name = folder.name.replace("-", "_")
        (script,) = load_scripts("studies", SCRIPTS.get(folder.name, name))
        text = script.readme(read_json(folder / "results.json"))
    assert (folder / "README.md").read_text(encoding="utf-8") == text


def test_the_overview_begins_with_the_reference_experiment():
    """Fails if its table was edited by hand, or is older than the results."""
    (reference,) = load_scripts("studies", "reference")
    part = reference.excerpt(read_json(reference.FOLDER / "results.json"))
    page = reference.OVERVIEW.read_text(encoding="utf-8")
    assert f"<!-- {reference.FOLDER.name} -->\n{part}\n<!-- end -->" in page


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_commands_name_no_place_of_one_machine(folder):
    """Fails if a reader would have to change a path of ours before a command runs."""
    assert not re.search(r"[ =]/\w", "\n".join(commands(folder)))


@pytest.fixture
def config_of(monkeypatch):
    """Return a function from a command line to its config; nothing is run.

    The encodings that a command imports are known for one test.
    """
    known = dict(REGISTRY)
    monkeypatch.setattr(outside, "_imported", {})
    monkeypatch.setattr(outside, "_brought", {})

    def asked(command):
        found = []

        def take(config, *arguments, **options):
            found.append(config)
            raise ValueError("only asked")

        monkeypatch.setattr("ropewalk.lab.running.compare.compare", take)
        monkeypatch.chdir(ROOT)  # where --import finds the examples
        program, *words = shlex.split(command)
        assert program == "ropewalk"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert found, done.output
        return found[0]

    yield asked
    REGISTRY.clear()
    REGISTRY.update(known)


@pytest.mark.parametrize("folder", OF_STUDIES, ids=name_of)
def test_every_recorded_command_can_be_typed_today(folder, config_of):
    """Those of comparisons are typed in the test below."""
    lines = commands(folder)
    assert lines
    for line in lines:
        if line.startswith("ropewalk"):
            config_of(line)
        else:
            program, script, *_ = shlex.split(line)
            assert program in {"python", "bash"}
            assert (ROOT / script).exists()


@pytest.mark.parametrize("folder", COMPARISONS, ids=name_of)
def test_a_recorded_command_asks_for_the_config_of_the_numbers(folder, config_of):
    """In results with parts, each part's command has its own cells and the same config."""
    results, lines = committed(folder), commands(folder)
    data = results.config.data
    if data in TEXTS:  # a clone does not have them
        assert lines.pop(0) == TEXTS[data]
    asked = [config_of(line) for line in lines]  # imports user-defined encodings too
    for part, found in zip(parts_of(results.as_json()), asked, strict=True):
        free = {name: getattr(found, name) for name in FREE}
        assert found == results.config.model_copy(update=free)
        cells = {(name, seed) for name, seeds in part["cells"].items() for seed in seeds}
        assert cells <= {(name, seed) for name in found.encodings for seed in found.seeds}


def test_no_committed_file_is_large():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a clone")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert files
    sizes = {path: path.stat().st_size for path in files if path.exists()}
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}
