"""The launcher of Ray clusters: a task for each cell; GPUs may be shared by fractions.

Machines of the cluster need the run's folder on a shared file system, and ropewalk installed.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import ray

from ropewalk.checks import shown
from ropewalk.lab.running.launcher import End, Job, Start, WorkerProcess
from ropewalk.lab.stopping import INTERRUPTED

_LOOKS_EVERY = 0.5
_SAVES_WITHIN = 60.0
_ANSWERS_WITHIN = 5.0


def run_cell(start: Start) -> End:
    """Run a cell in a task."""
    process = WorkerProcess(start, f"ray task {ray.get_runtime_context().get_task_id()}")
    try:
        while (end := process.end(_LOOKS_EVERY)) is None:
            pass
    except KeyboardInterrupt:  # the task is canceled
        process.stop()
        end = process.end(_SAVES_WITHIN)
    return end or End(1)


class SafeConfig(ray.job_config.JobConfig):
    """What Ray tells its workers, without the working directory: they would import from it."""

    def _serialize(self) -> str:
        self._py_driver_sys_path = [x for x in self._py_driver_sys_path if x in sys.path]
        return super()._serialize()


class RayJob:
    """A task of the cluster."""

    place = "ray"

    def __init__(self, task: Any) -> None:
        self._task = task

    def end(self) -> End | None:
        """Return how the task ended, or None."""
        done, _ = ray.wait([self._task], timeout=0)
        if not done:
            return None
        try:
            end: End = ray.get(self._task)
        except ray.exceptions.RayTaskError as error:
            return End(1, tuple(str(error).strip().splitlines()[-20:]))
        except Exception as error:  # Ray has several: the task was killed, or its machine died
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return End(INTERRUPTED, (f"its ray task ended without a result: {reason}",))
        return end

    def stop(self) -> None:
        """Cancel the task; its cell saves."""
        ray.cancel(self._task, force=False)


class RayLauncher:
    """Starts cells as tasks of Ray, in a running cluster or in one of this machine.

    Raises ValueError if nothing answers at the address.
    """

    name = "ray"
    at_once: int | None = 1000

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        _check_address(self._address())
        self.gpus: float = arguments.get("gpus", 0)
        self._began = False

    def start(self, starts: Sequence[Start]) -> list[Job]:
        """Start a task for each. Raises ValueError if the cluster does not answer."""
        self._connect()
        cpus = self._arguments.get("cpus", starts[0].threads)
        if not self._address():
            _check_room(cpus, self.gpus)
        remote = ray.remote(
            num_cpus=cpus,
            num_gpus=self.gpus,
            max_retries=self._arguments.get("retries", 3),
            retry_exceptions=False,
        )(run_cell)
        return [RayJob(remote.remote(start)) for start in starts]

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._began:
            ray.shutdown()

    def _address(self) -> str:
        """Return the address of a running cluster; "" for a new one on this machine."""
        return str(self._arguments.get("address") or os.environ.get("RAY_ADDRESS", ""))

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        address = self._address()
        own: dict[str, Any] = {} if address else {"include_dashboard": False}
        if not address.startswith("ray://"):  # a server that has its own
            own["job_config"] = SafeConfig()
        try:
            ray.init(
                address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"--launcher-args address (or RAY_ADDRESS) must be that of a running Ray cluster, "
                f"got {shown(address)}: {shown(said, 300)}"
            ) from None
        self._began = True


def _check_room(cpus: float, gpus: float) -> None:
    """Raise ValueError if a cell needs more than all machines have; Ray would wait for ever."""
    has = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for name, wanted, present in (
        ("cpus", cpus, has.get("CPU", 0)),
        ("gpus", gpus, has.get("GPU", 0)),
    ):
        if wanted > present:
            raise ValueError(
                f"--launcher-args {name} must be at most {present:g}, which this machine has, got "
                f"{wanted:g}; set a smaller one, or name a larger cluster with address"
            )


def _check_address(address: str) -> None:
    """Raise ValueError if nothing listens at host:port; Ray would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # none, or a name that Ray resolves, such as auto
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"--launcher-args address (or RAY_ADDRESS) must be that of a running Ray cluster, got "
            f"{shown(address)}, where nothing answers: {error}"
        ) from None
