"""The notebooks of examples/: they run, and what they show is what they print today.

These fail if a notebook is not listed in the README, is larger than a reader would wait for, shows
an error, has an output that its code no longer prints, or leaves files behind.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import redirect_stdout
from io import StringIO

import pytest
from cells_here import run_cells_here
from scripts import ROOT

from ropewalk.lab.running import compare as comparison

FOLDER = ROOT / "examples"
NOTEBOOKS = ("rope_from_scratch", "reading_a_config", "comparing_encodings")
IN_JUPYTER = "rope_from_scratch"  # the others run in this process, which has imported torch
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


def executed(cells, folder):
    """Execute a notebook in an empty folder as Jupyter does; return what its cells print."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    book = nbformat.reads(json.dumps(book), 4)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=resources).execute()
    return printed(book.cells)


def executed_here(cells):
    """Execute the cells of a notebook in this process; return what each of them prints.

    A cell that shows a value, a picture for instance, ends with it.
    """
    namespace, said = {"__name__": "__main__"}, []
    for cell in cells:
        if cell["cell_type"] == "code":
            code = ast.parse("".join(cell["source"]))
            shows = any(each["output_type"] == "execute_result" for each in cell["outputs"])
            last = ast.Expression(code.body.pop().value) if shows else None
            with redirect_stdout(StringIO()) as out:
                exec(compile(code, "notebook", "exec"), namespace)
                assert last is None or eval(compile(last, "notebook", "eval"), namespace).svg()
            said.append(out.getvalue())
    return said


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
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setattr(comparison, "run_cells", run_cells_here)
    monkeypatch.chdir(tmp_path)
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = printed(cells)
    if name == TRAINED:
        (training,) = (cell for cell in cells if EXAMPLES in "".join(cell["source"]))
        training["source"] = "".join(training["source"]).replace(EXAMPLES, '"examples": 1_000,')
    now = executed(cells, tmp_path) if name == IN_JUPYTER else executed_here(cells)
    for here, there in zip(now, shown, strict=True):
        assert NUMBER.sub("#", here).split() == NUMBER.sub("#", there).split()
        if name != TRAINED:
            for a, b in zip(numbers(here), numbers(there), strict=True):
                assert a == pytest.approx(b, rel=0.05, abs=1e-6)
    assert list(tmp_path.iterdir()) == []
