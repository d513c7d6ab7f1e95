"""What starts the cells of a run and reports when each has ended, and the launcher of this machine.

Every launcher starts the same process on the machine where the cell runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Goal
from ropewalk.lab.decoding.processes import LARGEST_ON_HEAP, MOST_KEPT
from ropewalk.lab.stopping import SAFE_PATH

STOP_WITH_PARENT = "--stop-at-eof"
# glibc otherwise returns freed memory to the system and takes it again within every training step:
# a twentieth to a tenth of a small model's step.
KEEP_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(MOST_KEPT),
    "MALLOC_MMAP_THRESHOLD_": str(LARGEST_ON_HEAP),
}
MOST_NOISE, MOST_OF_A_LINE = 200, 2_000  # lines kept of a cell's output, and characters of a line


@dataclass(frozen=True)
class Start:
    """What is started: a cell of a run, up to a goal.

    attempt: names this start in the cell's events. dead: the mark of a lease to take over.
    """

    run: Path
    cell: Cell
    goal: Goal
    threads: int
    attempt: str
    dead: str = ""

    def words(self, job: str = "") -> list[str]:
        """Return the command of the cell's process."""
        words = [sys.executable, "-m", "ropewalk.lab.running.worker", str(self.run)]
        words += [self.cell.encoding, str(self.cell.seed), "--goal", self.goal]
        words += ["--settings", json.dumps(dict(self.cell.settings)), "--attempt", self.attempt]
        return [*words, "--dead", self.dead, "--job", job, STOP_WITH_PARENT]


@dataclass(frozen=True)
class End:
    """How a job ended: the exit status of the cell's process, and its last lines of output."""

    code: int
    output: tuple[str, ...] = ()


class WorkerProcess:
    """A cell in a process of this machine. It saves and ends when it is stopped, or orphaned."""

    place = ""

    def __init__(self, start: Start, job: str = "") -> None:
        # In its own session: Ctrl-C reaches only this process, which forwards it once. Nothing is
        # written to standard input; when it closes, the cell knows that this process is gone.
        self._process = subprocess.Popen(
            start.words(job),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",  # an imported encoding may print any bytes
            env={
                **KEEP_MEMORY,
                **os.environ,
                **SAFE_PATH,
                "OMP_NUM_THREADS": str(start.threads),
                "TOKENIZERS_PARALLELISM": "false",
            },
            start_new_session=True,
        )
        self._noise: deque[str] = deque(maxlen=MOST_NOISE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self, within: float = 0) -> End | None:
        """Return how the process ended, or None if it still runs after these seconds."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join(5)
        return End(code, tuple(line.rstrip("\n") for line in self._noise))

    def stop(self) -> None:
        """Ask the cell to save and end."""
        self._process.send_signal(signal.SIGINT)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._noise.extend(iter(partial(stream.readline, MOST_OF_A_LINE), ""))


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


class LocalLauncher:
    """Starts cells as processes of this machine."""

    name = "local"
    at_once: int | None = None
    gpus: float = 0

    def start(self, starts: Sequence[Start]) -> list[Job]:
        """Start a process for each."""
        return [WorkerProcess(start) for start in starts]

    def close(self) -> None:
        """Do nothing: the processes end with their cells."""
