"""Cells that have reached their goal already.

These fail if such a cell is started again or its files are touched, if a cell of another config,
without its model or with other decoding counts as done, or if the command does not say what was
done before.
"""

from __future__ import annotations

import shutil
import sys
from unittest.mock import Mock

import pytest
from cells_here import prepare_here
from tiny_tasks import TINY_COPY

from ropewalk.files import read_checked_json, read_json, write_checked_json
from ropewalk.lab.cells import Cell, cells_of
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.running import worker
from ropewalk.lab.running.cell import done_before, run_cell
from ropewalk.lab.running.launcher import End
from ropewalk.lab.running.scheduler import run_cells
from ropewalk.lab.stopping import CellFailed

FIELDS = {**TINY_COPY, "encodings": "none,rotary", "seeds": 1}
CONFIG = make_config(settings=FIELDS)
CELL = Cell("none", 1)


class Refuses:
    """A launcher that writes down what it was asked to start; each start fails."""

    name, at_once, gpus = "refuses", 8, 0.0

    def __init__(self):
        self.started = []

    def start(self, starts):
        self.started += [start.cell for start in starts]
        return [self for _ in starts]

    place = ""

    def end(self):
        return End(1, ("refused",))

    def stop(self):
        pass


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "run"
    prepare_here(CONFIG, run)
    for cell in cells_of(CONFIG):
        run_cell(run, cell, lambda event: None)
    return run


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def changed(path, **facts):
    write_checked_json(path, read_checked_json(path) | facts)


def started(run, config=CONFIG, goal="scored"):
    """Return the cells that a command would start."""
    launcher = Refuses()
    try:
        run_cells(config, run, goal=goal, launcher=launcher)
    except CellFailed:
        pass
    else:
        assert launcher.started == []
    return launcher.started


@pytest.mark.parametrize("goal", ["trained", "scored"])
def test_what_is_done_is_not_started_and_not_touched(run, goal):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("cells/*/*/*")}
    launcher, told = Refuses(), []
    run_cells(CONFIG, run, watch=lambda *event: told.append(event), goal=goal, launcher=launcher)
    assert launcher.started == []
    assert told == [(cell, {"phase": "already finished"}) for cell in cells_of(CONFIG)]
    assert {path: path.stat().st_mtime_ns for path in run.rglob("cells/*/*/*")} == before


def test_only_what_is_missing_is_started(run):
    folder = CELL.folder(run)
    (folder / "x1.json").unlink()
    assert started(run) == [CELL]
    assert started(run, goal="trained") == []
    (folder / "training.json").unlink()
    assert started(run, goal="trained") == [CELL]


def test_scores_of_other_decoding_are_not_done(run):
    config = CONFIG.model_copy(update={"length_multiples": (1, 2)})
    assert started(run, config) == cells_of(CONFIG)
    assert started(run, config, "trained") == []


def test_a_tuned_cell_is_done_for_the_values_that_it_tried(tmp_path):
    sweep = {"average": (1, 2)}
    config = make_config(settings={**FIELDS, "sweep": sweep})
    prepare_here(config, tmp_path)
    assert started(tmp_path, config, "tuned") == cells_of(config)
    for cell in cells_of(config):
        run_cell(tmp_path, cell, lambda event: None, "tuned")
    assert started(tmp_path, config, "tuned") == []
    assert started(tmp_path, config) == cells_of(config)
    wider = make_config(settings={**FIELDS, "sweep": {"average": (1, 3)}})
    assert started(tmp_path, wider, "tuned") == cells_of(config)


@pytest.mark.parametrize("name", ["model.safetensors", "x1.json", "training.json"])
def test_a_cell_with_a_damaged_or_missing_file_is_started(run, name):
    path = CELL.folder(run) / name
    path.write_bytes(b"{" if name.endswith("json") else b"")
    assert started(run) == [CELL]
    path.unlink()
    assert started(run) == [CELL]


def test_a_record_of_another_config_is_started_and_refused_there(run):
    path = CELL.folder(run) / "training.json"
    changed(path, config=read_json(path)["config"] | {"epochs": 2})
    with pytest.raises(ValueError, match=r"epochs is 2\.0 there and 1\.0 here"):
        done_before(CELL, run, CONFIG, "scored")
    assert started(run) == [CELL]
    with pytest.raises(ValueError, match="checkpoint of another config"):
        run_cell(run, CELL, lambda event: None)


def test_a_cell_that_diverged_is_done_when_it_is_scored(run):
    folder = CELL.folder(run)
    record = read_json(folder / "training.json")["record"]
    changed(folder / "training.json", record=record | {"status": "diverged"})
    (folder / "model.safetensors").unlink()
    assert done_before(CELL, run, CONFIG, "trained").status == "diverged"
    assert done_before(CELL, run, CONFIG, "scored") is None
    run_cell(run, CELL, lambda event: None)
    assert done_before(CELL, run, CONFIG, "scored").status == "diverged"
    told = []
    run_cells(CONFIG, run, watch=lambda *event: told.append(event), launcher=Refuses())
    assert (CELL, {"phase": f"already diverged after {record['step']} steps"}) in told


def test_a_process_that_comes_too_late_touches_nothing(run, monkeypatch, capsys):
    """A job may wait in a queue until another command has finished its cell."""
    monkeypatch.setattr(worker.os, "dup2", lambda *_: None)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(worker.warnings, "showwarning", worker.warnings.showwarning)
    monkeypatch.setattr(worker, "stopping_signals", list)
    before = {path: path.stat().st_mtime_ns for path in CELL.folder(run).iterdir()}
    assert worker._main(str(run), CELL.encoding, "1", "--attempt", "late") == 0
    assert {path: path.stat().st_mtime_ns for path in CELL.folder(run).iterdir()} == before
    assert worker._main(str(run / "nowhere"), CELL.encoding, "1") == 1
    assert "nowhere" in capsys.readouterr().err
    assert not (run / "nowhere").exists()
    full = OSError(28, "No space left on device", "owner.json")
    monkeypatch.setattr(worker, "owned", Mock(side_effect=full))
    assert worker._main(str(run), CELL.encoding, "1") == 1
    said = "owner.json: No space left on device; files written before are intact\n"
    assert capsys.readouterr().err == said
