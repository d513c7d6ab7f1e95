"""Runs whose encodings were imported: what is remembered, and what a run may go on with.

These fail when a run goes on with a file that has changed since, or without it; when a file that
was moved ends a run; when a cell's process does not find what its parent imported; and when runs
that imported nothing remember it.
"""

import pytest
from cells_here import prepare_here
from rich.console import Console
from tiny_tasks import config_of

from ropewalk.encodings import REGISTRY, import_encodings, outside
from ropewalk.files import read_json
from ropewalk.lab.cells import cells_of
from ropewalk.lab.config import Config
from ropewalk.lab.running.cell import run_cell
from ropewalk.lab.running.progress import Watcher
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.running.scheduler import run_cells, train_one
from ropewalk.lab.stopping import CellFailed
from ropewalk.lab.training.checkpoints import training_fields

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
    prepare_here(config, run)
    forget()
    file.write_text(TEXT + "# changed", encoding="utf-8")
    cell = cells_of(config)[0]
    with pytest.raises(ValueError, match="has changed since this run imported it"):
        run_cell(run, cell, lambda event: None)
    file.write_text(TEXT, encoding="utf-8")
    run_cell(run, cell, lambda event: None)
    assert (cell.folder(run) / "model.safetensors").exists()


def test_a_model_says_what_it_needs(file):
    facts = training_fields(asked(file)) | {"encodings": ["mine"]}
    assert facts["imports"][0]["source"] == "mine.py"  # wherever it lies
    assert Config.model_validate(facts)
    forget()
    with pytest.raises(ValueError, match=r"encodings of mine\.py are not known here"):
        Config.model_validate(facts)


NOISY = TEXT.replace(
    "\n",
    """
import os
print("hello from mine")
print("[1]")
os.write(1, b"\\xff{")
os.write(1, b"no newline")
""",
    1,
)


@pytest.mark.slow
def test_what_an_imported_file_prints_is_no_event(file, tmp_path, capfd, forking):
    """Fails if it ends the one who listens, or a path is given that is not there."""
    file.write_text(NOISY, encoding="utf-8")
    config = asked(file).model_copy(update={"seeds": (1,)})
    capfd.readouterr()
    with Watcher(Console()) as watcher:
        path = train_one(config, tmp_path / "run", watcher.watch)
    assert path.is_file()
    out, err = capfd.readouterr()
    assert "mine, seed 1: finished" in out
    assert "mine, seed 1: hello from mine\n" in err
    assert "[1]" in err
    assert "\\xff{no newline" in err


@pytest.mark.slow
def test_an_imported_file_that_ends_its_cell_has_not_finished_it(file, tmp_path, forking):
    """Fails if a cell that sys.exit(0) ended early passes for one that is done."""
    ends = """
class Ends(Encoding):
    def embed(self, x, positions):
        if self.training:  # the probe does not train
            raise SystemExit(0)
        return x

REGISTRY["mine"] = lambda shape: Ends()
"""
    file.write_text(TEXT.partition("REGISTRY[")[0] + ends, encoding="utf-8")
    config = asked(file).model_copy(update={"seeds": (1,)})
    with pytest.raises(CellFailed, match="mine, seed 1: an encoding ended the process"):
        train_one(config, tmp_path / "run", lambda cell, event: None)


@pytest.mark.slow
def test_a_listener_that_fails_fails_the_run(tmp_path, forking):
    """Fails if a run whose events nobody could take passes for one that is whole, or hangs."""

    def watch(cell, event):
        if event.get("phase") == "training":
            raise BrokenPipeError("nobody listens")

    config = config_of("copy", encodings=("none",), epochs=10_000)
    prepare(config, tmp_path)
    with pytest.raises(BrokenPipeError, match="nobody listens"):
        run_cells(config, tmp_path, 2, watch)
