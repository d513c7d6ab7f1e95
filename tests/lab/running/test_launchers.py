"""Launchers and their arguments, and one comparison under several of them, with processes.

These fail if a mistake in arguments is accepted or not explained, if bits depend on what starts a
cell, if a kill of the command or of a job loses work, if a run that one launcher began cannot be
continued by another, or if a cell runs a file of the working directory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from cells_here import prepare_here, run_cells_here
from forking import Forking

from ropewalk.files import read_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.running.events import read_session
from ropewalk.lab.running.launcher import Start, WorkerProcess
from ropewalk.lab.running.launcher_arguments import RAY, SLURM, make_launcher, read_arguments
from ropewalk.lab.running.lease import owned
from ropewalk.lab.running.status import list_runs, read_status
from ropewalk.lab.tensors import read_tensors

SETTINGS = {"task": "copy", "encodings": "none,rotary", "seeds": "1,2,3"}
SETTINGS |= {"examples": 600, "epochs": 4, "train_length": 6, "width": 32, "heads": 2}
SETTINGS |= {"feed_forward": 64, "layers": 1, "length_multiples": "1", "test_examples": 20}
SETTINGS |= {"batch_tokens": 256, "device": "cpu"}
PATIENCE = 400


def begin(run, *words, **others):
    settings = [f"{name}={value}" for name, value in {**SETTINGS, **others}.items()]
    command = ["-P", "-m", "ropewalk.cli", "compare", *settings, "--out", str(run), *words]
    # Ray starts threads and processes of its own; those of a forked process may hang.
    start = Forking.__base__ if "ray" in words else subprocess.Popen
    return start(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_DISABLE_DOCKER_CPU_WARNING": "1"},
    )


def finish(process):
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, said
    return said


def trained(run):
    return len(list((run / "cells").glob("*/*/training.json")))


def scored(run):
    return len(list((run / "cells").glob("*/*/x1.json")))


def kill_when(process, run, ready, number=signal.SIGKILL, held=0):
    """Kill the command when `ready(run)`, and wait until its cells have saved and ended.

    held: cells that this process holds meanwhile, so that the command does not end before.
    """
    until = time.monotonic() + PATIENCE
    while not ready(run):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate()
    while sum(cell.state == "running" for cell in read_status(run).cells) > held:
        assert time.monotonic() < until
        time.sleep(0.2)


def bits(run):
    """Return what a run computed: weights, records without times, scores, and outputs."""
    found = {}
    for folder in sorted((run / "cells").glob("*/*")):
        name = str(folder.relative_to(run))
        found[f"{name} weights"] = {
            key: tensor.numpy().tobytes()
            for key, tensor in read_tensors(folder / "model.safetensors")[0].items()
        }
        record = read_json(folder / "training.json")["record"]
        found[f"{name} losses"] = [
            (point["step"], point["loss"]) for key in ("training", "validation")
            for point in record[key]
        ]  # fmt: skip
        for path in folder.glob("x*.json"):
            held = read_json(path)
            found[f"{name} {path.name}"] = {
                key: value for key, value in held.items() if key not in ("seconds", "checksum")
            }
    return json.loads(json.dumps(found, default=str))


def assert_same_bits(run, other):
    """The cells of a run are those of another run, which may have more."""
    ours, theirs = bits(run), bits(other)
    assert ours == {name: theirs[name] for name in ours}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run whose cells this process trains, with one thread as the others."""
    run, config = tmp_path_factory.mktemp("runs") / "whole", make_config(settings=SETTINGS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    prepare_here(config, run)
    run_cells_here(config, run, 1, None)
    torch.set_num_threads(threads)
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [(), pytest.param(("--launcher", "ray"), marks=pytest.mark.longer)], ids=["", "ray"]
)
def test_begun_here_killed_continued_by_submitit_and_finished(
    uninterrupted, tmp_path, forking, traps, words
):
    """The last cells are for the command that finishes the run: here, or with Ray."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    if words:
        pytest.importorskip("ray", reason="ray is not installed")
        words += ("--launcher-args", "retries=1")
    run = tmp_path / "run"
    held = run / "cells" / "rotary"
    slurm = ["--launcher", "slurm", "--launcher-args", "cluster=local", "--jobs", "2"]
    with owned(held / "seed-3"):
        with owned(held / "seed-2"):
            kill_when(begin(run, "--jobs", "2"), run, lambda run: scored(run) >= 1, held=2)
        here = scored(run)
        assert 1 <= here <= 4
        process = begin(run, *slurm)
        kill_when(process, run, lambda run: scored(run) > here, signal.SIGINT, held=1)
    assert scored(run) < 6
    said = finish(begin(run, *words))
    assert "another command" not in said
    assert trained(run) == 6
    assert bits(run) == bits(uninterrupted)
    results = read_json(run / "results.json")
    assert results["machine"]["launchers"] == ["local", "slurm", *(["ray"] if words else [])]
    jobs = [read_session(path.parent)[0]["job"] for path in run.rglob("events.jsonl")]
    assert {job.partition(" ")[0] for job in jobs} == {"", "local", *(["ray"] if words else [])}
    ((_, task, state, score, _),) = [row for row in list_runs(tmp_path) if row[0] == "run"]
    assert (task, state) == ("copy", "complete")
    assert score.startswith("exact match")


@pytest.mark.slow
def test_a_preempted_job_saves_and_goes_on(uninterrupted, tmp_path, forking):
    """Sends what Slurm sends before it takes a node away."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    run = tmp_path / "run"
    slurm = ["--launcher", "slurm", "--launcher-args", "cluster=local", "--jobs", "1"]
    process = begin(run, *slurm, seeds=1)
    until, warned = time.monotonic() + PATIENCE, set()
    while process.poll() is None and len(warned) < 2:
        assert time.monotonic() < until
        jobs = forking("submitit.core._submit")
        for pid in {*jobs} - warned:
            if any(e.get("phase") == "training" for e in sessions(run)):
                os.kill(pid, signal.SIGUSR2)
                warned.add(pid)
                break
        time.sleep(0.05)
    finish(process)
    assert warned
    assert trained(run) == 2
    assert_same_bits(run, uninterrupted)


def test_a_cell_imports_nothing_from_the_working_directory(traps, monkeypatch):
    child = [sys.executable, "-c", "import struct, random, yaml"]
    monkeypatch.setattr(Start, "words", lambda *_: child)
    assert WorkerProcess(Start(Path("run"), Cell("none", 1), "scored", 1, "a")).end(60).code == 0


def sessions(run):
    return [event for path in run.rglob("events.jsonl") for event in read_session(path.parent)[-1:]]


@pytest.mark.slow
def test_two_commands_on_one_folder_share_its_cells(uninterrupted, tmp_path, forking):
    """A third, this process, holds the last cell until both wait for it, whoever is faster."""
    run = tmp_path / "run"
    with owned(run / "cells" / "rotary" / "seed-1"):
        both = [begin(run, "--jobs", "1", seeds=1) for _ in range(2)]
        for process in both:
            lines = iter(process.stdout.readline, "")
            assert any("rotary, seed 1: another command is running it" in line for line in lines)
    said = [finish(process) for process in both]
    trained_it = ["rotary, seed 1: finished" in each for each in said]
    assert sorted(trained_it) == [False, True], said
    assert trained(run) == 2
    assert_same_bits(run, uninterrupted)


@pytest.mark.parametrize(
    ("name", "texts", "why"),
    [
        ("slrum", None, "did you mean 'slurm'"),
        ("local", "gpus=1", "the launcher local takes no arguments"),
        ("slurm", "gpu=1", "did you mean 'gpus'"),
        ("slurm", "gpus=-1", "whole number of at least 0"),
        ("slurm", "gpus=1.5", "whole number"),
        ("slurm", "gpus=true", "whole number"),
        ("slurm", "minutes=4", "at least 5"),
        ("slurm", "partition", "name=value"),
        ("slurm", "partition=", "name=value"),
        ("slurm", "gpus=1,gpus=2", "once"),
        ("slurm", "cluster=moon", "slurm or local"),
        ("ray", "gpus=half", "must be a number"),
        ("ray", "retries=1.5", "whole number"),
    ],
)
def test_a_mistake_is_explained(tmp_path, name, texts, why):
    with pytest.raises(ValueError, match=why):
        make_launcher(name, texts, tmp_path)


def test_arguments_have_their_types():
    found = read_arguments("partition=0123,gpus=2,memory_gb=8", "slurm", SLURM)
    assert found == {"partition": "0123", "gpus": 2, "memory_gb": 8.0}
    assert read_arguments("gpus=0.5", "ray", RAY) == {"gpus": 0.5}
    assert read_arguments(None, "ray", RAY) == {}


@pytest.mark.parametrize(("name", "library"), [("slurm", "submitit"), ("ray", "ray")])
def test_a_launcher_that_is_not_installed_names_its_extra(tmp_path, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"ropewalk.lab.running.on_{name}", raising=False)
    with pytest.raises(ValueError, match=rf"pip install .*\[{name}\]"):
        make_launcher(name, None, tmp_path)


def test_slurm_without_its_commands_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="needs sbatch"):
        make_launcher("slurm", None, tmp_path)
