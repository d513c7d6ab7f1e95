"""The launcher of this machine: a process for each cell."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.lab.launch.launcher import End, Job
from ropewalk.lab.launch.worker_process import Start, WorkerProcess


class LocalJob:
    """A process of this machine."""

    place = ""

    def __init__(self, start: Start) -> None:
        self._process = WorkerProcess(start)

    def end(self) -> End | None:
        """Return how the process ended, or None."""
        code = self._process.code()
        return None if code is None else End(code, tuple(self._process.output()))

    def stop(self) -> None:
        """Forward Ctrl-C."""
        self._process.stop()


class LocalLauncher:
    """Starts cells as processes of this machine."""

    name = "local"
    at_once: int | None = None
    gpus: float = 0

    def start(self, starts: Sequence[Start]) -> list[Job]:
        """Start a process for each."""
        return [LocalJob(start) for start in starts]

    def close(self) -> None:
        """Do nothing: the processes end with their cells."""
