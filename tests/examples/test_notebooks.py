"""The notebooks of examples/: they run, and what they show is what they print today.

These fail if a notebook is not listed in the README, is larger than a reader would wait for, shows
an error, has an output that its code no longer prints, or leaves files behind.
"""

from __future__ import annotations

import json
import re

import pytest
from scripts import ROOT

FOLDER = ROOT / "examples"
NOTEBOOKS = ("rope_from_scratch", "reading_a_config", "comparing_encodings")
TRAINED = "comparing_encodings"  # its scores depend on the processor, so few examples serve here
EXAMPLES = '"examples": 50_000,'
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]\d+)?")


def printed(cells):
    """What the cells of code print, without the words of other libraries."""
    return [
        "".join("".join(each["text"]) for each in cell["outputs"] if each.get("name") == "stdout")
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def numbers(text):
    return [float(each.replace(",", "")) for each in NUMBER.findall(text)]


def test_all_notebooks_are_listed_here_and_in_the_readme():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in NOTEBOOKS:
        assert f"[{name}.ipynb]({name}.ipynb)" in readme


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_was_run_in_order_and_shows_no_error(name):
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 400_000
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = {each["output_type"] for cell in code for each in cell["outputs"]}
    assert kinds == {"stream", "execute_result"}
    assert not any(each.get("name") == "stderr" for cell in code for each in cell["outputs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_prints_what_it_shows(name, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    shown = printed(book.cells)
    if name == TRAINED:
        (training,) = (cell for cell in book.cells if EXAMPLES in cell.source)
        training.source = training.source.replace(EXAMPLES, '"examples": 1_000,')
    client = nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for now, before in zip(printed(book.cells), shown, strict=True):
        assert NUMBER.sub("#", now).split() == NUMBER.sub("#", before).split()
        if name != TRAINED:
            for a, b in zip(numbers(now), numbers(before), strict=True):
                assert a == pytest.approx(b, rel=0.05, abs=1e-6)
    assert list(tmp_path.iterdir()) == []
