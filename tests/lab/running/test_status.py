"""`ropewalk status` and `ropewalk runs`, from folders alone.

These fail if a state is named that the folder does not show, if a running cell of another machine
is taken for waiting, or if a folder that is no run ends in anything but a line.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict

import pytest
from cells_here import prepare_here
from tiny_tasks import TINY_COPY

from ropewalk.files import read_checked_json, write_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.running.cell import run_cell
from ropewalk.lab.running.compare import compare
from ropewalk.lab.running.events import event_writer
from ropewalk.lab.running.lease import Owner, owned
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.running.status import list_runs, read_status

CONFIG = {**TINY_COPY, "encodings": "none,rotary", "seeds": (1, 2)}
DONE, OTHER = Cell("none", 1), Cell("rotary", 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    prepare_here(make_config(settings=CONFIG), folder)
    run_cell(folder, DONE, lambda event: None)
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "runs" / "run")


def status_of(run, cell):
    (found,) = [status for status in read_status(run).cells if status.cell == cell]
    return found


def states(run):
    return {
        str(cell.cell): (": ".join(filter(None, (cell.state, cell.detail))), cell.step)
        for cell in read_status(run).cells
    }


def test_finished_and_waiting_cells(run):
    found = read_status(run)
    assert states(run) == {
        "none, seed 1": ("finished", ""),
        "none, seed 2": ("waiting", ""),
        "rotary, seed 1": ("waiting", ""),
        "rotary, seed 2": ("waiting", ""),
    }
    assert found.summary().startswith("1 finished, 3 waiting. ")
    assert list_runs(run.parent) == [("run", "copy", "1 of 4 cells", "", "none, rotary")]


def test_json_has_all_cells_and_runs(run, command):
    status, out, err = command("status", run, "--json")
    found = json.loads(out)
    assert (status, err, found["run"], found["finished"]) == (0, "", str(run), False)
    assert found["cells"] == json.loads(json.dumps([asdict(c) for c in read_status(run).cells]))
    (row,) = json.loads(command("runs", run.parent, "--json")[1])
    assert tuple(row.values()) == list_runs(run.parent)[0]
    assert list(row) == ["folder", "task", "state", "score", "encodings"]
    status, out, err = command("runs", run / "none", "--json")
    assert (status, list(json.loads(out))) == (2, ["error"])


def test_a_running_cell_shows_its_step_time_left_and_place(run):
    folder = OTHER.folder(run)
    with owned(folder, job="slurm job 7"), event_writer(folder, "a", {}) as write:
        write({"phase": "training", "step": 30, "steps": 120, "seconds": 10.0, "loss": 1.0})
        found = status_of(run, OTHER)
        assert (found.state, found.step, found.left) == ("running", "30/120", 30.0)
        assert found.place.startswith("this machine, slurm job 7, process ")
        write({"phase": "scoring x1"})
        assert states(run)[str(OTHER)] == ("running: scoring x1", "30/120")
    assert states(run)[str(OTHER)][0] == "waiting"
    elsewhere = Owner("t", "another boot", "node7", 4, "slurm job 8", "")
    (folder / "owner.json").write_text(json.dumps(asdict(elsewhere)))
    found = status_of(run, OTHER)
    assert (found.state, found.place) == ("running", "node7, slurm job 8, process 4")
    os.utime(folder / "owner.json", (1e9, 1e9))
    found = status_of(run, OTHER)
    assert (found.state, found.left) == ("silent", None)
    assert "last sign" in found.place
    assert found.row()[1] == "silent"


def test_failed_interrupted_and_diverged_cells(run):
    folder = OTHER.folder(run)
    folder.mkdir(parents=True)
    (folder / "last.safetensors").touch()
    assert states(run)[str(OTHER)][0] == "interrupted"
    with event_writer(folder, "a", {}) as write:
        write({"error": "out of memory: so much"})
    assert states(run)[str(OTHER)][0] == "failed: out of memory: so much"
    record = DONE.folder(run) / "training.json"
    facts = read_checked_json(record)
    facts["record"]["status"] = "diverged"
    write_checked_json(record, facts)
    assert states(run)[str(DONE)][0] == "diverged"


def test_a_run_is_complete_only_with_the_results_of_its_config(run):
    config = CONFIG | {"encodings": "none", "seeds": (1,)}
    compare(make_config(settings=config), run, command=["ropewalk"], launcher=Nobody())
    assert read_status(run).finished
    assert list_runs(run.parent)[0][2] == "complete"
    prepare(make_config(settings=CONFIG), run)  # more cells, as when a command adds seeds
    assert not read_status(run).finished
    assert list_runs(run.parent)[0][2] == "1 of 4 cells"
    prepare(make_config(settings=config), run)
    (run / "report.html").unlink()  # the disk was full
    assert not read_status(run).finished


class Nobody:
    """A launcher that must not be needed."""

    name, at_once, gpus = "local", 1, 0.0

    def start(self, starts):
        raise AssertionError(starts)

    def close(self):
        pass


def test_a_run_with_imported_encodings_needs_none_of_their_code(run):
    config = run / "config.json"
    own = {"imports": [{"source": "/gone/mine.py", "digest": "0" * 64}]}
    own["encodings"] = ["none", "mine(width=3)"]
    write_checked_json(config, read_checked_json(config) | own)
    found = read_status(run)
    assert [str(cell.cell) for cell in found.cells[:2]] == ["none, seed 1", "mine(width=3), seed 1"]
    assert [row[2] for row in list_runs(run.parent)] == ["0 of 4 cells"]


def test_a_damaged_record_is_a_failed_cell(run):
    (DONE.folder(run) / "training.json").write_text("{")
    assert states(run)[str(DONE)][0].startswith("failed: ")
    assert "training.json" in states(run)[str(DONE)][0]


def test_what_is_no_run_is_explained(run, tmp_path):
    with pytest.raises(ValueError, match="RUN must be the folder of a run"):
        read_status(tmp_path)
    with pytest.raises(ValueError, match="has none"):
        list_runs(run)
    with pytest.raises(ValueError, match="must be a folder that contains runs"):
        list_runs(tmp_path / "nowhere")
    (run / "config.json").write_text("{")
    ((name, task, state, _, _),) = list_runs(run.parent)
    assert (name, task, state) == ("run", "?", "cannot be read")
