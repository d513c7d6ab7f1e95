"""Launchers by name, and their arguments: these fail if a mistake is accepted, or not explained."""

from __future__ import annotations

import sys

import pytest

from ropewalk.lab.running.launcher import RAY, SLURM, make_launcher, read_arguments


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
    with pytest.raises(ValueError, match=rf"ropewalk\[{name}\]"):
        make_launcher(name, None, tmp_path)


def test_slurm_without_its_commands_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="needs sbatch"):
        make_launcher("slurm", None, tmp_path)
