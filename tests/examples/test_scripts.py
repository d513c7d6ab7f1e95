"""The scripts of examples/ run as they are, in an empty folder, and print what they promise.

These fail if a script is missing, is longer than a screen or two, no longer runs, leaves files
behind, or prints numbers that contradict what its docstring says.
"""

import ast
import re
import runpy

import pytest
from cells_here import run_cells_here
from scripts import ROOT

from ropewalk.lab.running import compare as comparison

FOLDER = ROOT / "examples"
SCRIPTS = (
    "rotate_queries_and_keys",
    "rope_of_a_config",
    "llama_in_transformers",
    "packed_and_padded",
    "extend_a_context",
    "train_two_encodings",
)
ENCODINGS = ("claims_encodings", "faulty_rope")  # for --import
NUMBER = r"(-?\d[\d,]*\.?\d*(?:e[-+]\d+)?)"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Return a function that runs a script in an empty folder and returns what it prints."""

    def run_script(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        capfd.readouterr()
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        assert list(tmp_path.iterdir()) == []
        return capfd.readouterr().out

    return run_script


def numbers(pattern: str, text: str) -> list[float]:
    """Return the number that stands at every NUMBER of the pattern, which must occur once."""
    found = re.findall(pattern.replace("NUMBER", NUMBER), text)
    assert len(found) == 1, (pattern, text)
    groups = found[0] if isinstance(found[0], tuple) else found
    return [float(group.replace(",", "")) for group in groups]


def test_all_scripts_are_listed_here_and_in_the_readme():
    assert {path.stem for path in FOLDER.glob("*.py")} == {*SCRIPTS, *ENCODINGS}
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in (*SCRIPTS, *ENCODINGS):
        assert readme.count(f"\n| [{name}.py]({name}.py) |") == 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_says_what_it_shows(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    assert len(ast.get_docstring(ast.parse(source)).splitlines()) >= 3


def test_rotate_queries_and_keys(run):
    text = run("rotate_queries_and_keys")
    assert numbers("decode, largest difference: NUMBER", text)[0] < 1e-6
    assert numbers("gives the keys back, largest difference: NUMBER", text)[0] < 1e-5
    scores = re.findall(r"query at +([\d,]+): (-?\d\.\d+)", text)
    assert scores[-1][0] == "2,000,000,000"
    assert len(scores) == 5
    assert len({float(score) for _, score in scores}) == 1


def test_rope_of_a_config(run):
    text = run("rope_of_a_config")
    assert "32 layers, all the same: True" in text
    assert re.search(r"pairing +model_type", text)
    assert re.search(r"theta +rope_theta", text)
    stretched = [float(value) for value in re.findall(r"(\d+\.\d\d)x", text)]
    assert stretched[0] == 1
    assert stretched[-1] == 8
    assert stretched == sorted(stretched)
    scaled = re.findall(r"layer (\d): theta +([\d,]+), scaling (\w+)", text)
    assert scaled == [
        *((str(layer), "10,000", "None") for layer in range(5)),
        ("5", "1,000,000", "Linear"),
    ]
    assert "rope_type 'llama3' has no field 'beta_fast'" in text


def test_llama_in_transformers(run, monkeypatch):
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    # The script replaces it; later tests of this process need transformers' own.
    monkeypatch.setattr(library, "apply_rotary_pos_emb", library.apply_rotary_pos_emb)
    text = run("llama_in_transformers")
    size, difference = numbers("logits of about NUMBER, the two ropes differ by NUMBER", text)
    assert size > 0.5
    assert difference < 1e-3 * size
    rows = re.findall(rf"^ +([\d,]+) +{NUMBER} +{NUMBER}$", text, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "4,096", "131,072", "10,000,000"]
    theirs, ours = ([float(row[column]) for row in rows] for column in (1, 2))
    assert max(ours) < 1e-4
    assert theirs[1] > 5e-5
    assert theirs[3] > 0.1


def test_packed_and_padded(run):
    text = run("packed_and_padded")
    assert "packed positions: [0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]" in text
    differences = re.findall(rf"against each text alone: {NUMBER}", text)
    assert len(differences) == 2
    assert max(map(float, differences)) < 1e-5
    assert "at positions [3, 6, 4]: shape (3, 2, 1, 32)" in text
    assert "[0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8]" in text


def test_extend_a_context(run):
    text = run("extend_a_context")
    rows = re.findall(rf"^(\w[\w ]*?) +(\d+) +{NUMBER} +{NUMBER} +{NUMBER}$", text, re.MULTILINE)
    table = {row[0]: tuple(map(float, row[1:])) for row in rows}
    assert len(table) == 6
    assert table["no rule"][0] == numbers("^NUMBER of 64 pairs do not finish", text)[0] > 0
    assert table["Linear"] == (0, 4, 4, 1)
    assert table["YaRN"][:2] == (0, 1)
    assert table["YaRN"][3] == 1.139  # 1 + 0.1 ln 4
    assert numbers("rotated by YaRN: NUMBER", text)[0] < 1e-5
    assert numbers("against the same: NUMBER", text)[0] > 1
    assert numbers("rotated there: NUMBER", text)[0] < 1e-5


@pytest.mark.slow
def test_train_two_encodings(run, monkeypatch):
    monkeypatch.setattr(comparison, "run_cells", run_cells_here)
    text = run("train_two_encodings")
    rows = re.findall(rf"^(\w+) +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}$", text, re.MULTILINE)
    table = {row[0]: tuple(map(float, row[1:])) for row in rows}
    assert set(table) == {"rotary", "sinusoidal"}
    assert table["rotary"][0] == table["sinusoidal"][0] > 100  # steps
    assert all(x1 < 150 for _, _, x1, _ in table.values())  # 300 words: something is learned
    assert table["rotary"][3] < table["sinusoidal"][3]
    assert numbers("attention maps: NUMBER MiB", text)[0] > 0.1
