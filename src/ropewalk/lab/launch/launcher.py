"""The interface between a run and what starts its cells and reports when each has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ropewalk.lab.launch.worker_process import Start


@dataclass(frozen=True)
class End:
    """How a job ended: the exit status of the cell's process, and its last lines of output."""

    code: int
    output: tuple[str, ...] = ()


class Job(Protocol):
    """A cell that was started. Its progress is in its folder, not here."""

    @property
    def place(self) -> str:
        """Where it runs, for people, such as "Slurm job 12_3"; "" if on this machine."""

    def end(self) -> End | None:
        """Return how it ended, or None if it waits or runs. Must not block."""

    def stop(self) -> None:
        """Ask it to save and end."""


class Launcher(Protocol):
    """Starts cells. A launcher holds no state that is needed later: that is in the run's folder."""

    name: str
    #: How many cells may wait or run together; None for as many as this machine has cores.
    at_once: int | None
    gpus: float  # that each cell requests from the cluster; 0: config.device alone decides

    def start(self, starts: Sequence[Start]) -> list[Job]:
        """Start these cells, in one request if the cluster has a form for that."""

    def close(self) -> None:
        """Free what the launcher itself uses."""
