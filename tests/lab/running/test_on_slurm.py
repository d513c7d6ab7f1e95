"""The launcher of Slurm, with submitit's local cluster and with commands that only look like Slurm.

These fail if a cell that submitit runs differs from one run here, if a refusal of Slurm ends in a
traceback, if a job counts as gone while it waits, or as waiting when it is gone, or if a file of
the run's folder is taken for its result.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from cells_here import prepare_here
from tiny_tasks import TINY_COPY

pytest.importorskip("submitit", reason="submitit is not installed")

from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.running import on_slurm
from ropewalk.lab.running.cell import run_cell
from ropewalk.lab.running.events import read_session
from ropewalk.lab.running.launcher import Start
from ropewalk.lab.running.launcher_arguments import make_launcher
from ropewalk.lab.running.on_slurm import Queue, SlurmJob, SlurmLauncher
from ropewalk.lab.running.scheduler import run_cells
from ropewalk.lab.stopping import INTERRUPTED
from ropewalk.lab.tensors import read_checksum

CELL = Cell("rotary", 1)
OWN = {"encodings": CELL.encoding, "seeds": CELL.seed, "precision": "float32"}
CONFIG = make_config(settings={**TINY_COPY, **OWN})


@pytest.mark.slow  # two processes that import torch, one after the other
def test_a_cell_that_submitit_runs_is_the_same_as_one_run_here(tmp_path, monkeypatch, traps):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    here, there, told = tmp_path / "here", tmp_path / "there", []
    prepare_here(CONFIG, there)
    shutil.copytree(there, here)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run_cell(here, CELL, lambda event: None)
    torch.set_num_threads(threads)
    launcher = make_launcher("slurm", "cluster=local", there)
    run_cells(CONFIG, there, watch=lambda cell, event: told.append(event), launcher=launcher)
    models = [read_checksum(CELL.folder(run) / "model.safetensors") for run in (here, there)]
    assert models[0] is not None
    assert models[0] == models[1]
    assert told[0]["phase"].startswith("queued, local job ")
    assert told[-1] == {"phase": "finished"}
    assert read_session(CELL.folder(there))[0]["job"].startswith("local job ")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Return a function that puts a command of Slurm on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    for name in ("sbatch", "srun", "squeue", "scancel"):
        put(name, "exit 0")
    return put


def test_a_refusal_of_slurm_is_one_line(tmp_path, commands, capfd):
    commands("sbatch", "echo 'sbatch: error: invalid partition: x' >&2; exit 1")
    launcher = SlurmLauncher(tmp_path / "run", {"partition": "x"})
    starts = [Start(tmp_path / "run", replace(CELL, seed=n), "scored", 1, "a") for n in (1, 2)]
    for asked in (starts, starts[:1]):
        with pytest.raises(ValueError, match=r"invalid partition: x.*change --launcher-args"):
            launcher.start(asked)
    assert capfd.readouterr().err == ""


def test_a_result_that_lies_in_the_folder_is_not_that_of_a_job(tmp_path, commands):
    """submitit would unpickle it."""
    commands("sbatch", "echo Submitted batch job 7")
    commands("squeue", "echo 7")
    run, harm = tmp_path / "run", tmp_path / "harm"
    (run / "launcher").mkdir(parents=True)
    result = run / "launcher" / "7_0_result.pkl"
    result.write_bytes(b"cos\nmkdir\n(V%s\ntR." % bytes(harm))
    (job,) = SlurmLauncher(run, {}).start([Start(run, CELL, "scored", 1, "a")])
    assert job.end() is None
    assert not harm.exists()


@pytest.mark.parametrize("name", ["50%", "a\nb"])
def test_a_folder_that_sbatch_cannot_name_is_refused(tmp_path, commands, name):
    with pytest.raises(ValueError, match="path without % and line breaks"):
        SlurmLauncher(tmp_path / name, {})


def test_a_job_is_gone_when_the_queue_no_longer_shows_it(commands, monkeypatch):
    monkeypatch.setattr(on_slurm, "_ASKS_EVERY", -1.0)
    commands("squeue", "echo 7_0; echo 7_1")
    queue = Queue()
    assert queue.has("7_0")
    assert queue.has("8_0")  # submitted a moment ago
    commands("squeue", "echo 7_1")
    assert not queue.has("7_0")
    assert queue.has("7_1")
    commands("squeue", "exit 1")  # Slurm does not answer
    assert queue.has("7_1")
    monkeypatch.setattr(on_slurm, "_GONE_AFTER", 0.0)
    assert not queue.has("8_0")


def test_the_result_of_a_canceled_local_job_is_not_waited_for(tmp_path):
    """submitit would look for its file for 15 seconds."""
    job = Mock(job_id="7")
    job.paths.result_pickle = tmp_path / "none.pkl"
    job.done.return_value = False
    canceled = SlurmJob(job, "local", None, tmp_path)
    assert canceled.end() is None
    job.done.return_value = True
    assert canceled.end().code == INTERRUPTED
    job.result.assert_not_called()
    job.paths.result_pickle.touch()
    assert canceled.end() is job.result.return_value
