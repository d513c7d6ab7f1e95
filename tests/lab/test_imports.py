"""Runs whose encodings were imported: what is remembered, and what a run may go on with.

These fail when a run goes on with a file that has changed since, or without it; when a file that
was moved ends a run; when a cell's process does not find what its parent imported; and when runs
that imported nothing remember it.
"""

import pytest
from tiny_tasks import config_of

from ropewalk.encodings import REGISTRY, import_encodings, outside
from ropewalk.files import read_json
from ropewalk.lab.config import Config
from ropewalk.lab.run import cells_of, prepare
from ropewalk.lab.worker import run_cell

TEXT = """from ropewalk.encodings import REGISTRY, Encoding

REGISTRY["mine"] = lambda shape: Encoding()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    known = dict(REGISTRY)
    monkeypatch.setattr(outside, "_imported", {})
    path = tmp_path / "mine.py"
    path.write_text(TEXT, encoding="utf-8")
    yield path
    REGISTRY.clear()
    REGISTRY.update(known)


def forget():
    """Be a new process."""
    outside._imported.clear()
    REGISTRY.pop("mine", None)


def asked(path):
    return config_of("copy", encodings=("mine",), imports=[import_encodings(str(path))])


def test_a_run_goes_on_with_the_same_file_alone(file, tmp_path):
    run = tmp_path / "run"
    prepare(asked(file), run)
    assert read_json(run / "config.json")["imports"][0]["source"] == str(file)
    forget()
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / "mine.py")
    prepare(asked(moved), run)  # the same bytes in another folder
    forget()
    moved.write_text(TEXT + "# changed", encoding="utf-8")
    with pytest.raises(ValueError, match="has changed since this run imported it"):
        prepare(asked(moved), run)
    forget()
    with pytest.raises(ValueError, match="name it with --import"):
        prepare(config_of("copy", encodings=("none",)), run)


def test_a_run_that_imported_nothing_is_another_than_one_that_did(file, tmp_path):
    prepare(config_of("copy", encodings=("none",)), tmp_path / "run")
    with pytest.raises(ValueError, match="imports is None there"):
        prepare(asked(file), tmp_path / "run")


def test_a_cell_imports_what_its_run_names(file, tmp_path):
    run = tmp_path / "run"
    config = asked(file)
    prepare(config, run)
    forget()
    file.write_text(TEXT + "# changed", encoding="utf-8")
    cell = cells_of(config)[0]
    with pytest.raises(ValueError, match="has changed since this run imported it"):
        run_cell(run, cell.encoding, cell.seed, lambda event: None)
    file.write_text(TEXT, encoding="utf-8")
    run_cell(run, cell.encoding, cell.seed, lambda event: None)
    assert (cell.folder(run) / "model.safetensors").exists()


def test_a_model_says_what_it_needs(file):
    facts = asked(file).training() | {"encodings": ["mine"]}
    assert facts["imports"][0]["source"] == "mine.py"  # wherever it lies
    assert Config.model_validate(facts)
    forget()
    with pytest.raises(ValueError, match=r"encodings of mine\.py are not known here"):
        Config.model_validate(facts)


def test_nothing_imported_is_nothing_remembered():
    config = config_of("copy", encodings=("none",))
    assert "imports" not in config.facts()
    assert "imports" not in config.training()
