"""The launcher of Ray without a cluster: fails if what can never run is queued for ever."""

from __future__ import annotations

import socket
from unittest.mock import Mock

import pytest

pytest.importorskip("ray", reason="ray is not installed")

from ropewalk.lab.running import on_ray


@pytest.mark.parametrize(
    ("cpus", "gpus", "why"),
    [(3, 0, "cpus must be at most 2"), (1, 0.5, "gpus must be at most 0")],
)
def test_a_cell_that_fits_no_machine_is_refused(monkeypatch, cpus, gpus, why):
    monkeypatch.setattr(on_ray.ray, "cluster_resources", lambda: {"CPU": 2.0})
    on_ray._check_room(2, 0)
    with pytest.raises(ValueError, match=why):
        on_ray._check_room(cpus, gpus)


def test_a_wrong_address_is_explained(monkeypatch):
    refuse = Mock(side_effect=ValueError("Invalid address format: nowhere"))
    monkeypatch.setattr(on_ray.ray, "init", refuse)
    with pytest.raises(ValueError, match="must be that of a running Ray cluster"):
        on_ray.RayLauncher({"address": "nowhere"}).start([])


def test_nothing_waits_for_a_cluster_that_does_not_answer(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ValueError, match="nothing answers"):
        on_ray.RayLauncher({"address": address})
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ValueError, match="nothing answers"):
        on_ray.RayLauncher({})
